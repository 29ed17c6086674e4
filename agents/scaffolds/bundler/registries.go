package bundler

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/agent/bundle"
)

// npm installs packages of the npm registry into npm/. Their install scripts do
// not run.
func (k *kitchen) npm(ctx context.Context, r bundle.Recipe) ([]bundle.Package, error) {
	if len(r.NPM) == 0 {
		return nil, nil
	}
	if err := k.answers(ctx); err != nil {
		return nil, err
	}
	dir := filepath.Join(k.root, "npm")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte("{\"private\": true}\n"), 0o644); err != nil {
		return nil, err
	}
	for _, p := range r.NPM {
		if at := strings.LastIndex(p, "@"); at < 1 || strings.HasPrefix(p, "-") {
			return nil, fmt.Errorf("npm package %q: expected NAME@VERSION; without a version npm would choose one for this machine", p)
		}
	}
	argv := []string{"npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--omit=dev", "--no-update-notifier", "--loglevel=error"}
	argv = append(append(argv, "--"), r.NPM...)
	if _, err := k.run(ctx, dir, nil, argv...); err != nil {
		return nil, unansweredNPM(err)
	}
	file := filepath.Join(dir, "package-lock.json")
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if raw, err = anywhere(raw); err == nil {
		err = os.WriteFile(file, raw, 0o644)
	}
	if err != nil {
		return nil, err
	}
	return locked(raw)
}

// anywhere returns an npm lock file without the addresses of packages. npm
// omits the address of a cached package, so the same packages would give
// different bundles, and the address of a mirror may contain a password. npm
// then uses its registry and compares the digests.
func anywhere(raw []byte) ([]byte, error) {
	var lock map[string]any
	if err := json.Unmarshal(raw, &lock); err != nil {
		return nil, fmt.Errorf("package-lock.json: %w", err)
	}
	packages, _ := lock["packages"].(map[string]any)
	for _, p := range packages {
		is, _ := p.(map[string]any)
		if from, _ := is["resolved"].(string); strings.HasPrefix(from, "https://") || strings.HasPrefix(from, "http://") {
			delete(is, "resolved")
		}
	}
	out, err := json.MarshalIndent(lock, "", "  ")
	return append(out, '\n'), err
}

// locked returns the packages of an npm lock file.
func locked(raw []byte) ([]bundle.Package, error) {
	var lock struct {
		Packages map[string]struct {
			Name      string `json:"name"`
			Version   string `json:"version"`
			Integrity string `json:"integrity"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(raw, &lock); err != nil {
		return nil, fmt.Errorf("package-lock.json: %w", err)
	}
	var out []bundle.Package
	for _, path := range slices.Sorted(maps.Keys(lock.Packages)) {
		p := lock.Packages[path]
		if path == "" {
			continue
		}
		_, name, _ := strings.Cut(path, "node_modules/")
		if i := strings.LastIndex(name, "node_modules/"); i >= 0 {
			name = name[i+len("node_modules/"):]
		}
		if p.Name != "" {
			name = p.Name
		}
		out = append(out, bundle.Package{From: "npm", Name: name, Version: p.Version, Integrity: p.Integrity})
	}
	return out, nil
}

// suite is the Debian release whose packages all bundles use, whatever machine
// builds them.
const suite = "trixie"

// mirror is the server of the Debian packages.
func mirror() string { return cmp.Or(os.Getenv("BERTH_DEBIAN_MIRROR"), "http://deb.debian.org/debian") }

// silent matches the errors of apt, npm and pip for a registry that does not
// answer.
var silent = regexp.MustCompile(`(?i)could not resolve|temporary failure|name or service not known|could not connect|unable to connect|connection (refused|timed out|reset|failed)|` +
	`network is unreachable|read timed out|failed to establish|network timeout|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ECONNREFUSED|ECONNRESET|ENETUNREACH`)

// unanswered adds the address, and the variable that sets another one, to err
// if it is about a registry that does not answer.
func unanswered(err error, address, variable string) error {
	if !silent.MatchString(err.Error()) {
		return err
	}
	return fmt.Errorf("%s does not answer: set %s to a mirror that does, or make the bundle elsewhere and bring it here with `berth agent export` and `berth agent import`: %w",
		address, variable, err)
}

// debian unpacks the named Debian packages into the root without their
// dependencies, which are meant for whole systems. apt works in its own folders
// and uses nothing of the machine except the archive's keys.
func (k *kitchen) debian(ctx context.Context, r bundle.Recipe) ([]bundle.Package, error) {
	if len(r.Debian) == 0 {
		return nil, nil
	}
	m, ok := machines[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("there is no C library for %s in this Berth: amd64 and arm64 are known", runtime.GOARCH)
	}
	dir := filepath.Join(k.work, "apt")
	env, err := aptHome(dir)
	if err != nil {
		return nil, err
	}
	k.order.Log("packages of Debian come from " + mirror())
	if _, err = k.run(ctx, dir, env, "apt-get", "update", "-qq"); err != nil {
		if strings.Contains(err.Error(), "does not have a Release file") {
			return nil, fmt.Errorf("%s has no Debian %s: set BERTH_DEBIAN_MIRROR to a mirror of it: %w", mirror(), suite, err)
		}
		return nil, unanswered(err, mirror(), "BERTH_DEBIAN_MIRROR")
	}
	debsDir := filepath.Join(dir, "debs")
	if err = os.Mkdir(debsDir, 0o755); err != nil {
		return nil, err
	}
	if _, err = k.run(ctx, debsDir, env, append([]string{"apt-get", "download", "-qq", "--"}, r.Debian...)...); err != nil {
		return nil, unanswered(err, mirror(), "BERTH_DEBIAN_MIRROR")
	}
	debs, err := filepath.Glob(filepath.Join(debsDir, "*.deb"))
	if err != nil || len(debs) == 0 {
		return nil, fmt.Errorf("apt-get brought nothing for %s: %w", strings.Join(r.Debian, " "), err)
	}
	var out []bundle.Package
	for _, deb := range debs {
		p := bundle.Package{From: "debian"}
		if p.Integrity, err = sha256Of(deb); err != nil {
			return nil, err
		}
		p.Name, p.Version, _ = strings.Cut(strings.TrimSuffix(filepath.Base(deb), ".deb"), "_")
		p.Version, _, _ = strings.Cut(strings.ReplaceAll(p.Version, "%3a", ":"), "_")
		out = append(out, p)
		if _, err = k.run(ctx, dir, nil, "dpkg-deb", "-x", deb, k.root); err != nil {
			return nil, err
		}
	}
	return out, fitLoader(k.root, m)
}

// aptHome makes the folders and the configuration of a separate apt.
func aptHome(dir string) (env []string, err error) {
	const keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
	if _, err = os.Stat(keys); err != nil {
		return nil, fmt.Errorf("the keys of Debian's archive are not on this machine (%s): install debian-archive-keyring, or make the bundle elsewhere and bring it here with `berth agent export` and `berth agent import`", keys)
	}
	for _, d := range []string{"state/lists/partial", "cache/archives/partial", "parts"} {
		if err = os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	conf := fmt.Sprintf(`Dir::State "%[1]s/state";
Dir::State::status "%[1]s/status";
Dir::Cache "%[1]s/cache";
Dir::Etc::sourcelist "%[1]s/sources.list";
Dir::Etc::sourceparts "%[1]s/parts";
Dir::Etc::parts "%[1]s/parts";
Dir::Etc::preferences "%[1]s/parts/none";
Dir::Etc::preferencesparts "%[1]s/parts";
APT::Architecture "%[2]s";
APT::Architectures { "%[2]s"; };
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::Retries "1";
Acquire::http::Timeout "10";
APT::Update::Error-Mode "any";
Debug::NoLocking "true";
`, dir, runtime.GOARCH)
	for name, text := range map[string]string{
		"apt.conf": conf, "status": "", "sources.list": fmt.Sprintf("deb [signed-by=%s] %s %s main\n", keys, mirror(), suite),
	} {
		if err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	return []string{"APT_CONFIG=" + filepath.Join(dir, "apt.conf"), "DEBIAN_FRONTEND=noninteractive"}, nil
}

func sha256Of(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err = io.Copy(h, f); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// compile compiles python/ to byte code with the bundle's own Python, because a
// sandbox could not store it.
func (k *kitchen) compile(ctx context.Context) error {
	program := filepath.Join(k.root, "usr", "bin", "python"+python)
	if _, err := os.Stat(program); err != nil {
		return nil //nolint:nilerr // a bundle without Python
	}
	var folders []string
	for _, dir := range []string{"python", "usr/lib/python" + python} {
		if _, err := os.Stat(filepath.Join(k.root, dir)); err == nil {
			folders = append(folders, filepath.Join(k.root, dir))
		}
	}
	argv := append([]string{
		filepath.Join(k.root, loaderName), "--library-path", filepath.Join(k.root, "lib"), program,
		"-m", "compileall", "-q", "-q", "--invalidation-mode", "unchecked-hash", "-s", k.root, "-p", bundle.Place, "-x", "bad|lib2to3/tests",
	}, folders...)
	// compileall must not write byte code of the modules that it imports
	// itself, because that would contain the path of this folder.
	_, err := k.run(ctx, k.work, []string{"PYTHONHOME=" + filepath.Join(k.root, "usr"), "PYTHONDONTWRITEBYTECODE=1", "PYTHONHASHSEED=0"}, argv...)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 && ctx.Err() == nil && !strings.Contains(err.Error(), "Traceback") {
		return nil // test data that is not valid Python may stay uncompiled
	}
	return errors.Join(err, ctx.Err()) // a compiler that was killed is an error
}
