package bundler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Latest is the version that stands for the newest one of the registry.
const Latest = "latest"

// askingTime is how long a registry has to say what its newest version is.
const askingTime = 30 * time.Second

// newest returns the newest version that the registry has of the package whose
// version is that of the bundle.
func (o *Order) newest(ctx context.Context) (string, error) {
	k := kitchen{order: *o, work: os.TempDir()}
	ctx, cancel := context.WithTimeout(ctx, askingTime)
	defer cancel()
	for _, p := range o.Recipe.NPM {
		if name, ok := versioned(p, "@"); ok {
			return k.newestNPM(ctx, name)
		}
	}
	for _, p := range slices.Concat(o.Recipe.PyPI, o.Recipe.Sources) {
		if name, ok := versioned(p, "=="); ok {
			return k.newestPyPI(ctx, name)
		}
	}
	return "", errors.New("no package of the recipe has the version of the bundle: name a version instead of " + Latest)
}

// versioned returns the name of a package whose version depends on that of the
// bundle.
func versioned(p, between string) (string, bool) {
	i := strings.LastIndex(p, between)
	return p[:max(i, 0)], i > 0 && strings.Contains(p[i:], "{version}")
}

func (k *kitchen) newestNPM(ctx context.Context, name string) (string, error) {
	out, err := k.run(ctx, k.work, nil, "npm", "view", "--json", "--loglevel=error", "--fetch-timeout=10000", "--fetch-retries=0", "--", name+"@"+Latest, "version")
	if err != nil {
		return "", unansweredNPM(err)
	}
	var version string
	if err = json.Unmarshal(out, &version); err != nil || version == "" {
		return "", fmt.Errorf("npm names no newest version of %s: %q", name, strings.TrimSpace(string(out)))
	}
	return version, nil
}

// offered is the first line of `pip index versions`.
var offered = regexp.MustCompile(`^\S+ \((\S+)\)`)

func (k *kitchen) newestPyPI(ctx context.Context, name string) (string, error) {
	out, err := k.run(ctx, k.work, quietPip(), "python3", "-m", "pip", "index", "versions", "--no-input", "--only-binary=:all:",
		"--implementation", "cp", "--python-version", python, "--", name)
	if err != nil {
		return "", unansweredPyPI(err)
	}
	found := offered.FindSubmatch(out)
	if found == nil {
		return "", fmt.Errorf("pip names no newest version of %s: %q", name, strings.TrimSpace(string(out)))
	}
	return string(found[1]), nil
}

// answers fails if the npm registry does not answer. npm itself would try for
// minutes.
func (k *kitchen) answers(ctx context.Context) error {
	_, err := k.run(ctx, k.work, nil, "npm", "ping", "--loglevel=error", "--fetch-timeout=10000", "--fetch-retries=0")
	if err != nil && silent.MatchString(err.Error()) {
		return unansweredNPM(err)
	}
	return nil // not every registry knows this request
}

func unansweredNPM(err error) error {
	return unanswered(err, cmp.Or(os.Getenv("npm_config_registry"), "npm's registry"), "npm_config_registry")
}
