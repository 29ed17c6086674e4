package harbor

import (
	"testing"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/tasks/internal/document"
)

// Whatever stands in task.toml, reading it ends, and says where it is wrong.
func FuzzConfig(f *testing.F) {
	f.Add("[agent]\ntimeout_sec = 1\n")
	f.Add("[[steps]]\nname = 'a'\n" + everything)
	f.Add("a.b.c = [[{d = 1}]]\n[a.b]\n")
	f.Fuzz(func(t *testing.T, text string) {
		r := &document.Reader{File: fileConfig}
		d := &decoder{Reader: r, top: r.TOML([]byte(text)), options: task.Options{}}
		if p := r.Problems; len(p) > 0 && p[0].Line == 0 {
			t.Errorf("%q: a syntax error without a place: %+v", text, p)
		}
		if c := d.config(); c == nil {
			t.Fatal("no config")
		}
		for _, p := range r.Problems {
			if p.Summary == "" || p.Detail == "" || p.Line < 0 {
				t.Errorf("%q: %+v", text, p)
			}
		}
	})
}
