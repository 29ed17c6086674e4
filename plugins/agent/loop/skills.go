package loop

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/yamltext"
)

// Limits of skills: bytes of one file, and number of files.
const (
	maxSkill  = 64 << 10
	maxSkills = 100
)

// listSkills prints the skill files below its arguments, each followed by a
// zero byte. A folder is a skill or contains skills.
const listSkills = `for d; do for f in "$d"/SKILL.md "$d"/*/SKILL.md; do if [ -f "$f" ]; then printf '%s\000' "$f"; fi; done; done`

// skill is the header of a skill file.
type skill struct {
	Name        string `yaml:"name"`
	Description string `yaml:"description"`
}

var front = regexp.MustCompile(`(?s)\A\x{FEFF}?---\r?\n(.*?)\r?\n---`)

// Skills returns the text for a prompt about skills in these folders of the sandbox,
// as a separate paragraph; empty without any. A skill that cannot be read is left
// out. A worker that uses it sets Agent.Skills.
func Skills(ctx context.Context, box sandbox.Shell, folders []string) (string, error) {
	if len(folders) == 0 {
		return "", nil
	}
	var found strings.Builder
	r, err := box.Exec(ctx, sandbox.Command{
		Argv: slices.Concat([]string{"sh", "-c", listSkills, "sh"}, folders), Stdout: &bounded{&found, maxSkill},
	})
	if err != nil {
		return "", fmt.Errorf("look for skills: %w", err)
	}
	if !r.OK() {
		return "", nil
	}
	var b strings.Builder
	for n, path := range strings.Split(strings.TrimSuffix(found.String(), "\x00"), "\x00") {
		if n == maxSkills || path == "" {
			break
		}
		text, err := box.ReadFile(ctx, path, maxSkill)
		if err != nil {
			continue // not a regular file, or too large
		}
		var s skill
		if m := front.FindSubmatch(text); m == nil || yamltext.Unmarshal(m[1], false, &s) != nil || s.Name == "" {
			continue
		}
		fmt.Fprintf(&b, "<skill>\n<name>%s</name>\n<description>%s</description>\n<location>%s</location>\n</skill>\n", line(s.Name), line(s.Description), line(path))
	}
	if b.Len() == 0 {
		return "", nil
	}
	return "\nFor some work there are instructions in the sandbox. Read the file of a skill before you do what it is for.\n<available_skills>\n" + b.String() + "</available_skills>\n", nil
}

// line converts text to one line that cannot be taken for a tag.
func line(s string) string {
	s = strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "\uFFFD")
	return strings.NewReplacer("<", "&lt;", ">", "&gt;", "&", "&amp;").Replace(s)
}

// bounded keeps the first bytes that are written to it.
type bounded struct {
	to   *strings.Builder
	left int
}

func (w *bounded) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.to.Write(p[:n])
	w.left -= n
	return len(p), nil
}
