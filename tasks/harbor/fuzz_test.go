package harbor

import (
	"testing"

	"github.com/berth-eval/berth/plugins/task"
)

// Whatever stands in task.toml, reading it ends, and says where it is wrong.
func FuzzConfig(f *testing.F) {
	f.Add("[agent]\ntimeout_sec = 1\n")
	f.Add("[[steps]]\nname = 'a'\n" + everything)
	f.Add("a.b.c = [[{d = 1}]]\n[a.b]\n")
	f.Fuzz(func(t *testing.T, text string) {
		doc, p := parseTOML(fileConfig, []byte(text))
		r := &reader{file: fileConfig, doc: doc}
		d := &decoder{reader: r, options: task.Options{}}
		if c := d.config(); c == nil {
			t.Fatal("no config")
		}
		if p != nil && (p.Line == 0 || p.Detail == "") {
			t.Errorf("%q: a syntax error without a place: %+v", text, p)
		}
		for _, p := range r.problems {
			if p.Summary == "" || p.Detail == "" || p.Line < 0 {
				t.Errorf("%q: %+v", text, p)
			}
		}
	})
}
