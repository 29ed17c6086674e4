package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/cli"
	"github.com/berth-eval/berth/schemas"
	"github.com/berth-eval/berth/tasks/harbor"
)

// ran is a command line that has run in this process:
//
//	run(t, "berth", "show", dir).must(exit(0), prints("passed"))
type ran struct {
	t           *testing.T
	args        []string
	code        int
	out, stderr string
}

// run runs a command line. The name of the program is there to be read.
func run(t *testing.T, args ...string) *ran {
	t.Helper()
	return runWith(t, nil, "", args...)
}

// runWith runs a command line with variables and a standard input.
func runWith(t *testing.T, env map[string]string, stdin string, args ...string) *ran {
	t.Helper()
	var out, stderr bytes.Buffer
	p := cli.Process{In: strings.NewReader(stdin), Out: &out, Err: &stderr, Env: func(name string) (string, bool) {
		if v, ok := env[name]; ok {
			return v, true
		}
		return os.LookupEnv(name)
	}}
	code := p.Run(t.Context(), args[1:], harbor.Format{})
	return &ran{t, args, code, out.String(), stderr.String()}
}

// words runs a command line that is written with spaces.
func words(t *testing.T, line string) *ran {
	t.Helper()
	return run(t, strings.Fields("berth "+line)...)
}

// check returns what is wrong with a command line that has run, or "".
type check func(r *ran) string

// must reports each check that finds something wrong.
func (r *ran) must(checks ...check) *ran {
	r.t.Helper()
	for _, c := range checks {
		if wrong := c(r); wrong != "" {
			r.t.Errorf("%q: %s\nexit code %d\nstdout:\n%s\nstderr:\n%s", r.args, wrong, r.code, r.out, r.stderr)
		}
	}
	return r
}

// exit wants this exit code.
func exit(code int) check {
	return func(r *ran) string {
		if r.code != code {
			return fmt.Sprintf("want exit code %d", code)
		}
		return ""
	}
}

// prints wants these texts on stdout; with none, stdout must be empty.
func prints(texts ...string) check {
	return func(r *ran) string { return lacks("stdout", r.out, texts) }
}

// complains wants these texts on stderr; with none, stderr must be empty.
func complains(texts ...string) check {
	return func(r *ran) string { return lacks("stderr", r.stderr, texts) }
}

func lacks(name, text string, wanted []string) string {
	if len(wanted) == 0 && text != "" {
		return name + " must be empty"
	}
	for _, w := range wanted {
		if !strings.Contains(text, w) {
			return fmt.Sprintf("%s does not have %q", name, w)
		}
	}
	return ""
}

// printsJSON wants JSON on stdout that the schema accepts, and reads it into v
// unless v is nil.
func printsJSON(schema string, v any) check {
	return func(r *ran) string {
		err := schemas.Check(schema, []byte(r.out))
		if err == nil && v != nil {
			err = json.Unmarshal([]byte(r.out), v)
		}
		if err != nil {
			return err.Error()
		}
		return ""
	}
}

// usage wants the exit code of wrong usage, no answer, and a reason with these texts.
func usage(texts ...string) check {
	return func(r *ran) string { return exit(2)(r) + prints()(r) + complains(texts...)(r) }
}
