// Package selection selects attempts with an expression, for --select of several
// commands: outcome == "failed" && cell.agent == "pi". The language is that of
// github.com/expr-lang/expr; Fields are the names that it may use.
//
// It must not decide which attempts a command asks about.
package selection

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/types"
	"github.com/expr-lang/expr/vm"

	"github.com/berth-eval/berth/cmd/berth/internal/notes"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/suggest"
)

// Flag is the usual name of the flag with an expression; errors begin with it.
const Flag = "--select"

// errEmpty is about an expression that says nothing.
var errEmpty = errors.New("the expression is empty: leave out the flag to select everything. Example: " + Flag + " 'outcome == \"failed\"'")

// Text is an expression as the value of a flag. An empty one is a mistake, such as
// a variable of a shell that is not set: it would select everything.
type Text string

// Set implements pflag.Value.
func (t *Text) Set(s string) error {
	if strings.TrimSpace(s) == "" {
		return errEmpty
	}
	*t = Text(s)
	return nil
}

// String implements pflag.Value.
func (t *Text) String() string { return string(*t) }

// Type implements pflag.Value.
func (*Text) Type() string { return "string" }

// Expression is a compiled expression. It is not safe for concurrent use.
type Expression struct {
	program *vm.Program
	machine vm.VM
	used    []Field // that the expression reads
	axes    []string
	notes   map[string]*notes.Notes // of readers, by run
}

// Compile compiles an expression for the attempts of some runs. Fails for an
// expression that is malformed, that is not yes or no, or that uses a name which does
// not exist. The error says where and suggests a name.
func Compile(text string, runs ...*store.Manifest) (*Expression, error) {
	if strings.TrimSpace(text) == "" {
		return nil, fmt.Errorf("%s: %w", Flag, errEmpty)
	}
	e := &Expression{axes: axes(runs)}
	env, cell := types.Map{}, types.Map{}
	for _, axis := range e.axes {
		cell[axis] = types.String
	}
	for i := range Fields {
		env[Fields[i].Name] = Fields[i].kind
	}
	env["cell"] = cell
	names := used{}
	var err error
	e.program, err = expr.Compile(text, expr.Env(env), expr.AsBool(), expr.Patch(names))
	if err != nil {
		return nil, e.explain(err)
	}
	for i := range Fields {
		if names[Fields[i].Name] {
			e.used = append(e.used, Fields[i])
		}
	}
	return e, nil
}

// Of compiles the expression of a flag for the run in dir, with the notes of its
// readers; nil if the text is empty, which selects everything.
func Of(text, dir string, m *store.Manifest) (*Expression, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // as documented
	}
	e, err := Compile(text, m)
	if err != nil {
		return nil, err
	}
	return e, e.Notes(m, dir)
}

// Notes reads the notes of readers beside the run in dir, if the expression is about
// them. Call it before Matches or Trials, for each run.
func (e *Expression) Notes(m *store.Manifest, dir string) error {
	if !slices.ContainsFunc(e.used, func(f Field) bool { return f.Name == "notes" }) {
		return nil
	}
	n, err := notes.Read(dir)
	if err != nil {
		return err
	}
	if e.notes == nil {
		e.notes = map[string]*notes.Notes{}
	}
	e.notes[m.Header.Run] = n
	return nil
}

// Matches reports whether an attempt is selected. Fails if the expression cannot
// be computed for it.
func (e *Expression) Matches(a *Attempt) (bool, error) {
	if n := e.notes[a.Manifest.Header.Run]; n != nil {
		with := *a
		with.notes = n.Labels(a.Trial.ID, a.number())
		a = &with
	}
	env := make(map[string]any, len(e.used))
	for i := range e.used {
		f := &e.used[i]
		if f.of != nil {
			env[f.Name] = f.of(a)
			continue
		}
		values := make(map[string]any, len(e.axes))
		for _, axis := range e.axes {
			values[axis] = a.cell().Choices[axis] // empty in a run without the axis
		}
		env[f.Name] = values
	}
	res, err := e.machine.Run(e.program, env)
	if err != nil {
		return false, fmt.Errorf("task %s: %w", a.Trial.Task, e.explain(err))
	}
	yes, ok := res.(bool)
	if !ok {
		return false, fmt.Errorf("%s: the expression is %v for task %s: expected true or false", Flag, res, a.Trial.Task)
	}
	return yes, nil
}

// Trials returns the trials of a run whose accepted attempt is selected, in the
// order of the manifest. A trial without an attempt has the outcome not_run. A nil
// expression selects all.
func (e *Expression) Trials(m *store.Manifest, x *store.Index) ([]*store.TrialState, error) {
	if e == nil {
		return x.Trials, nil
	}
	var selected []*store.TrialState
	for _, t := range x.Trials {
		yes, err := e.Matches(&Attempt{Manifest: m, Trial: t, State: t.Accepted()})
		if err != nil {
			return nil, err
		}
		if yes {
			selected = append(selected, t)
		}
	}
	return selected, nil
}

// What the library says of names that it does not know, and of other results.
var (
	unknownName  = regexp.MustCompile(`^unknown name (\S+)$`)
	unknownField = regexp.MustCompile(`^unknown field (\S+)$`)
	noTruth      = regexp.MustCompile(`^expected bool, but got (.+)$`)
)

// explain rewrites an error of the library.
func (e *Expression) explain(err error) error {
	var at *file.Error
	if !errors.As(err, &at) {
		if is := noTruth.FindStringSubmatch(err.Error()); is != nil {
			kind := map[string]string{"string": "a text", "float64": "a number", "int": "a number", "int64": "a number"}
			err = fmt.Errorf("the expression is %s, not true or false: compare it with something, as in score > 0.5", cmp.Or(kind[is[1]], "a value"))
		}
		return fmt.Errorf("%s: %w", Flag, err)
	}
	if name := unknownName.FindStringSubmatch(at.Message); name != nil {
		var known []string
		for i := range Fields {
			known = append(known, Fields[i].Name)
		}
		hint := cmp.Or(suggest.After(name[1], known), ": docs/reference/selection.md lists them")
		at.Message = fmt.Sprintf("there is no field %q%s", name[1], hint)
	} else if name = unknownField.FindStringSubmatch(at.Message); name != nil {
		at.Message = fmt.Sprintf("the runs have no axis %q%s", name[1], suggest.After(name[1], e.axes))
	}
	return fmt.Errorf("%s: %w", Flag, at)
}

// used notes the names that an expression uses.
type used map[string]bool

// Visit implements ast.Visitor.
func (u used) Visit(node *ast.Node) {
	if n, ok := (*node).(*ast.IdentifierNode); ok {
		u[n.Value] = true
	}
}
