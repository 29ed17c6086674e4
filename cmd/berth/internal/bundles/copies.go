package bundles

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/berth-eval/berth/agents/scaffolds/bundler"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/bundle"
)

// CopiesIn is the folder in a scratch folder for copies of bundles.
func CopiesIn(scratch string) string { return filepath.Join(scratch, "bundles") }

// Copy copies the bundles that agents asked for, and returns the folder with them;
// empty: they asked for none. Folders that are not installed bundles stay where they
// are.
func (c *Commands) Copy(ctx context.Context, to *bundler.Copies, used []agent.Bundle) (dir string, err error) {
	var all []bundle.Bundle
	seen := map[string]bool{}
	for _, u := range used {
		if in, bad := filepath.Rel(c.dir(), u.Source); seen[u.Name] || bad != nil || !filepath.IsLocal(in) {
			continue
		}
		b, err := bundle.Find(c.dir(), u.Name)
		if err != nil {
			return "", err
		}
		if b.Digest != u.Digest {
			return "", fmt.Errorf("bundle %s was replaced a moment ago: it was %s, and is %s", u.Name, u.Digest, b.Digest)
		}
		seen[u.Name] = true
		all = append(all, b)
	}
	if len(all) == 0 {
		return "", nil
	}
	return to.Use(ctx, all)
}
