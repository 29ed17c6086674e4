package cli

import (
	"context"
	"io"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/sandbox"
)

// calls is a sandbox that writes down what is asked of it.
type calls struct {
	*box

	list []string
}

func (c *calls) Exec(ctx context.Context, cmd sandbox.Command) (sandbox.Result, error) {
	c.list = append(c.list, "exec "+path.Base(cmd.Argv[0]))
	return c.box.Exec(ctx, cmd)
}

func (c *calls) Upload(ctx context.Context, dir string, tar io.Reader, o sandbox.UploadOptions) error {
	c.list = append(c.list, "upload "+dir)
	return c.box.Upload(ctx, dir, tar, o)
}

// Each call is a way to the sandbox and back, and each command a process, before
// the CLI does anything: there is one look and one upload, whatever has to be
// found out and however many files there are, and in later turns no look. The
// rest of sandbox.Shell is nil here: a call of it would panic.
func TestWhatIsDoneBeforeTheCLIStarts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		recipe bundle.Recipe
		skills []string // of the task
		files  int
		shell  string
	}{
		{name: "nothing but a message", shell: "sh"},
		{name: "a shell in the bundle", recipe: bundle.Recipe{Links: map[string]string{"bash": "x"}}, shell: "bash"},
		{name: "many files and skills", skills: []string{"/a", "/b", "/c"}, files: 50, shell: "sh"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := &box{look: "home\ntmp\nskill /a/one\nskill /b/two\n", run: func(c sandbox.Command) sandbox.Result {
				_, _ = io.WriteString(c.Stdout, "session s\nsay hello\n")
				return sandbox.Result{}
			}}
			s := open(t, b, agent.Setup{Workdir: "/w", Skills: tt.skills})
			c := &calls{box: b}
			s.shell, s.scaffold.Recipe = c, tt.recipe
			s.settings.Skills = map[string]Skill{"mine": {Text: "text"}}
			s.scaffold.Start = func(r *Run) (Start, error) {
				if own := Home + "/skills/mine"; !strings.HasSuffix(strings.Join(r.Skills, ", "), own) || r.Turn == 1 && !strings.Contains(r.Message, "Skills that may help are in "+own+":") {
					t.Errorf("the model is not told of the skill of the settings, or not started with all: %s: %s", r.Skills, r.Message)
				}
				files := r.SkillLinks("skills")
				for i := range tt.files {
					files = append(files, File{Path: "d" + strings.Repeat("/d", i%5) + "/f" + strings.Repeat("x", i), Data: "data"})
				}
				return Start{Argv: []string{"/opt/cli"}, Files: files, Stdin: r.Message}, nil
			}
			want := []string{"exec " + tt.shell, "upload /var/lib", "exec cli"}
			for turn := 1; turn <= 3; turn++ {
				c.list = nil
				if y, err := s.Turn(t.Context(), agent.Message{Text: "go", Turn: turn}, &recorded{}); err != nil || y.End != agent.Done {
					t.Fatalf("turn %d: %+v, %v", turn, y, err)
				}
				if !slices.Equal(c.list, want) {
					t.Errorf("turn %d: %q, want %q", turn, c.list, want)
				}
				want = []string{"upload /var/lib", "exec cli"}
			}
		})
	}
}
