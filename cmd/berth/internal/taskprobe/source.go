package taskprobe

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/untrusted"
)

// smallest is the size of the smallest file, in bytes, whose content counts as
// an answer. Shorter ones, such as "42", are found by chance.
const smallest = 16

// maxFiles bounds how many files of the tests, and of the solution, are read.
const maxFiles = 500

// secret is a file that agents must not have.
type secret struct {
	size int
	file string // below the task's folder
}

// read reads what the task keeps from agents, and what it tells them.
func (p *Probe) read() error {
	dir := p.task.Dir
	p.secrets = map[string]secret{}
	for _, folder := range []string{"tests", "solution"} {
		n := 0
		err := filepath.WalkDir(filepath.Join(dir, folder), func(file string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || n >= maxFiles {
				return err
			}
			if fi, gone := d.Info(); gone != nil || fi.Size() > largest {
				return gone
			}
			n++
			name, err := filepath.Rel(dir, file)
			if err != nil {
				return err
			}
			text, err := untrusted.Read(dir, name, largest)
			if len(text) >= smallest {
				sum := sha256.Sum256(text)
				p.secrets[hex.EncodeToString(sum[:])] = secret{len(text), filepath.ToSlash(name)}
			}
			return err
		})
		if err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("read the task: %w", err)
		}
	}
	text, err := untrusted.Read(dir, "instruction.md", largest)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	p.instruction = string(text)
	return nil
}

// probeFile is what the solution of probeScript leaves among the artifacts.
const probeFile = "berth-task-check"

// probeScript is a solution that lists the files of the sandbox with the sizes
// of those that an agent must not have, and the commits of repositories that are
// not in the history of their HEAD.
func (p *Probe) probeScript() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "#!/bin/sh\nout=%s\nmkdir -p \"$out\"\nexec > \"$out/%s\" 2>/dev/null\n", quoted(p.task.Paths.Artifacts), probeFile)
	prune := `\( -path /proc -o -path /sys -o -path /dev -o -path /solution -o -path /tests -o -path /logs \) -prune -o`
	if p.environment == "local" { // its programs are those of this machine, and no part of the task
		prune = strings.Replace(prune, `\( `, `\( -path /usr -o `, 1)
	}
	sizes := map[string]bool{}
	for _, s := range p.secrets {
		sizes[fmt.Sprintf("-size %dc", s.size)] = true
	}
	if len(sizes) > 0 {
		fmt.Fprintf(&b, "find / %s -type f \\( %s \\) -exec sha256sum {} + || [ -n \"$(command -v sha256sum)\" ] || echo 'no sha256sum'\n",
			prune, strings.Join(slices.Sorted(maps.Keys(sizes)), " -o "))
	}
	fmt.Fprintf(&b, `find / %s -name .git -print | head -n 50 | while read -r dir; do
  repo=${dir%%/.git}
  echo "repository $repo"
  command -v git >/dev/null || { echo 'no git'; continue; }
  g() { git -c safe.directory='*' -C "$repo" "$@"; }
  g log --all --reflog --not HEAD --max-count=20 --format='commit %%H %%s'
  g fsck --unreachable --no-reflogs --no-progress | grep '^unreachable commit' | head -n 20 | while read -r _ _ id; do
    g log -1 --format='commit %%H %%s' "$id"
  done
done
echo end
`, prune)
	return b.Bytes()
}

// quoted is a word of a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
