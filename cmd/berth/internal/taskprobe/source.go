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
	"regexp"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/untrusted"
)

// smallest is the size of the smallest file, in bytes, whose content counts as
// an answer. Shorter ones, such as "42", are found by chance.
const smallest = 16

// maxFiles bounds how many files of a task are read, and how many file names of
// its tests are tried.
const maxFiles = 500

// file is a file of the task.
type file struct {
	name string // below the task's folder
	text []byte
}

// place is a line of a file of the task, and what is there.
type place struct {
	what string
	file string
	line int
}

// source is what a task keeps from agents, and what it tells them.
type source struct {
	tests, solution []file
	instruction     string
}

// read reads the files of the task in dir.
func read(dir string) (source, error) {
	var s source
	for folder, into := range map[string]*[]file{"tests": &s.tests, "solution": &s.solution} {
		err := filepath.WalkDir(filepath.Join(dir, folder), func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || len(*into) >= maxFiles {
				return err
			}
			if fi, gone := d.Info(); gone != nil || fi.Size() > largest {
				return gone
			}
			name, err := filepath.Rel(dir, p)
			if err != nil {
				return err
			}
			text, err := untrusted.Read(dir, name, largest)
			*into = append(*into, file{filepath.ToSlash(name), text})
			return err
		})
		if err != nil && !os.IsNotExist(err) {
			return s, fmt.Errorf("read the task: %w", err)
		}
	}
	text, err := untrusted.Read(dir, "instruction.md", largest)
	if err != nil && !os.IsNotExist(err) {
		return s, err
	}
	s.instruction = string(text)
	return s, nil
}

// secrets are the files of the tests and of the solution, by the digests of
// their content.
func (s *source) secrets() map[string]place {
	found := map[string]place{}
	for _, f := range slices.Concat(s.tests, s.solution) {
		if len(f.text) >= smallest {
			sum := sha256.Sum256(f.text)
			found[hex.EncodeToString(sum[:])] = place{what: fmt.Sprint(len(f.text)), file: f.name}
		}
	}
	return found
}

// first is the first line of the tests that matches, or their script.
func (s *source) first(re *regexp.Regexp) place {
	for _, f := range s.tests {
		for i, line := range bytes.Split(f.text, []byte("\n")) {
			text := bytes.TrimSpace(line)
			if bytes.HasPrefix(text, []byte("#")) {
				continue
			}
			if m := re.Find(text); m != nil {
				return place{string(bytes.TrimSpace(m)), f.name, i + 1}
			}
		}
	}
	return place{file: "tests/test.sh"}
}

// Words of tests that say where something may come from.
var (
	rewards  = regexp.MustCompile(`reward\.(txt|json)`)
	networks = regexp.MustCompile(`\b(curl|wget|pip3? install|uvx?|apt-get|apk add|npm|npx|git clone|urllib|requests|nc)\b|https?://`)
	chances  = regexp.MustCompile(`\$\{?RANDOM|/dev/u?random|\brandom\b|\bshuf\b|\buuid|\bdate\b|\btime\b|\bsleep\b|\btimeout\b`)
)

// probeFile is what the solution of probeScript leaves among the artifacts.
const probeFile = "berth-task-check"

// probeScript is a solution that lists the files of the sandbox with the sizes
// of those that an agent must not have, and the commits of repositories that are
// not in the history of their HEAD.
func (p *Probe) probeScript() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "#!/bin/sh\nout=%s\nmkdir -p \"$out\"\nexec > \"$out/%s\" 2>/dev/null\n", quoted(p.Task.Paths.Artifacts), probeFile)
	prune := `\( -path /proc -o -path /sys -o -path /dev -o -path /solution -o -path /tests -o -path /logs \) -prune -o`
	if p.Environment == "local" { // its programs are those of this machine, and no part of the task
		prune = strings.Replace(prune, `\( `, `\( -path /usr -o `, 1)
	}
	sizes := map[string]bool{}
	for _, s := range p.secret {
		sizes["-size "+s.what+"c"] = true
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
