package webui

import (
	"fmt"
	"strconv"
	"strings"
)

// function is a function of actions.py.
type function struct {
	name  string
	first string // its first parameter: the browser
	line  int
	body  []statement
}

// readPython reads actions.py: the functions that the list actions names. They may
// have the forms that element, chained and plain know, and nothing else. Other
// functions are not looked at.
func (b *builder) readPython(text string) {
	all, line, err := scanPython(text)
	if err != nil {
		b.bad(filePython, line, "Not Python that can be read", "%s.", err)
		return
	}
	functions := map[string]*function{}
	var list []token
	listed := 0
	for i := 0; i < len(all); {
		s := all[i]
		i++
		first := s.tokens[0]
		switch {
		case first.text == "import" || first.text == "from" || len(s.tokens) == 1 && first.kind == kindString:
		case first.text == "def":
			f := function{line: first.line}
			if len(s.tokens) < 5 || s.tokens[1].kind != kindName || s.tokens[2].text != "(" {
				b.bad(filePython, first.line, "Not a function that can be read", "A function is written as def name(driver): with its statements in lines below it.")
				return
			}
			f.name, f.first = s.tokens[1].text, s.tokens[3].text // without parameters it is ), which nothing refers to
			for i < len(all) && all[i].indent > s.indent {
				f.body = append(f.body, all[i])
				i++
			}
			if last := s.tokens[len(s.tokens)-1]; last.text != ":" {
				f.body = nil // it is on one line: no form
			}
			functions[f.name] = &f
		case len(s.tokens) > 3 && first.text == "actions" && s.tokens[1].text == "=" && s.tokens[2].text == "[":
			list, listed = s.tokens[3:], first.line
		default:
			b.bad(filePython, first.line, "Statement that is not known", "Besides imports and functions there is only actions = [name, …].")
		}
	}
	if listed == 0 {
		b.bad(filePython, 1, "The list of actions is missing", "Write actions = [name, …] with the names of functions, or an empty list.")
		return
	}
	b.listed(list, functions)
}

// listed adds the actions of the list.
func (b *builder) listed(list []token, functions map[string]*function) {
	for i, t := range list {
		switch f := functions[t.text]; {
		case t.text == "]" && i == len(list)-1:
			return
		case t.text == ",":
		case t.kind != kindName || f == nil:
			b.bad(filePython, t.line, "Not a function", "The list of actions has %q, which is the name of no function above.", t.text)
			return
		default:
			r := &reading{driver: f.first, values: map[string]value{}}
			for _, s := range f.body {
				if err := r.statement(s.tokens); err != nil {
					b.bad(filePython, s.tokens[0].line, "Statement that is not known", "%s. It can be written in %s, which counts if it is there.", err, fileActions)
					return
				}
			}
			if len(f.body) == 0 {
				b.bad(filePython, f.line, "Function without statements", "Write them in lines below def.")
				return
			}
			b.actions = append(b.actions, action{Name: f.name, Steps: r.steps, line: f.line})
		}
	}
	b.bad(filePython, list[len(list)-1].line, "The list of actions is not closed", "It ends with ] on its own.")
}

// value is what a name in a function stands for.
type value struct {
	element *element
	list    bool   // element without an index: all that its selector finds
	chain   *chain // ActionChains
}

// chain are steps that perform does.
type chain struct {
	steps []step
	last  *element // where the mouse is
}

// reading reads the statements of a function.
type reading struct {
	driver string
	values map[string]value
	tokens []token
	steps  []step
}

// statement reads one: name = value, or what is done.
func (r *reading) statement(tokens []token) error {
	r.tokens = tokens
	if r.is(kindName, "pass") && len(tokens) == 1 || r.is(kindString, "") && len(tokens) == 1 {
		return nil
	}
	name := ""
	if len(tokens) > 2 && tokens[0].kind == kindName && tokens[1].text == "=" && tokens[1].kind == kindSign {
		name, r.tokens = tokens[0].text, tokens[2:]
	}
	v, done, err := r.expression()
	switch {
	case err != nil:
		return err
	case len(r.tokens) > 0:
		return fmt.Errorf("%q is not expected here", r.tokens[0].text)
	case name != "" && v.chain == nil && (done || v.element == nil):
		return fmt.Errorf("%s is set to something that is not an element", name)
	case name != "":
		r.values[name] = v
	case !done:
		return fmt.Errorf("it does nothing that is known")
	}
	return nil
}

func (r *reading) is(k kind, text string) bool {
	return len(r.tokens) > 0 && r.tokens[0].kind == k && (text == "" || r.tokens[0].text == text)
}

func (r *reading) take() token {
	if len(r.tokens) == 0 {
		return token{kind: kindOther, text: "the end of the line"}
	}
	t := r.tokens[0]
	r.tokens = r.tokens[1:]
	return t
}

// expect reads signs and names.
func (r *reading) expect(texts ...string) error {
	for _, want := range texts {
		if t := r.take(); t.text != want || t.kind != kindSign && t.kind != kindName {
			return fmt.Errorf("want %s instead of %q", want, t.text)
		}
	}
	return nil
}

// expression reads a value and what is called on it. done means that a step was
// made of it.
func (r *reading) expression() (v value, done bool, err error) {
	t := r.take()
	switch {
	case t.kind != kindName:
		return v, false, fmt.Errorf("%q is not expected here", t.text)
	case t.text == "time":
		return v, true, r.sleep()
	case t.text == "ActionChains":
		if err = r.expect("(", r.driver, ")"); err != nil {
			return v, false, err
		}
		v.chain = &chain{}
		done, err = r.chained(v.chain)
		return v, done, err
	case t.text == r.driver:
		if v, done, err = r.ofDriver(); err != nil || done {
			return v, done, err
		}
	default:
		known, ok := r.values[t.text]
		if !ok {
			return v, false, fmt.Errorf("%q is not known here", t.text)
		}
		v = known
	}
	if v.chain != nil {
		done, err = r.chained(v.chain)
		return v, done, err
	}
	if v, err = r.indexed(v); err != nil {
		return v, false, err
	}
	done, err = r.ofElement(v)
	return v, done, err
}

// closed reads the end of a call.
func (r *reading) closed() error {
	if r.is(kindSign, ",") {
		r.take()
	}
	return r.expect(")")
}

// sleep reads time.sleep(seconds).
func (r *reading) sleep() error {
	if err := r.expect(".", "sleep", "("); err != nil {
		return err
	}
	seconds, err := r.number()
	if err == nil {
		err = r.closed()
	}
	if err == nil && seconds > 0 {
		r.steps = append(r.steps, step{Do: doWait, Seconds: seconds})
	}
	return err
}

func (r *reading) number() (float64, error) {
	sign := 1.0
	if r.is(kindSign, "-") {
		r.take()
		sign = -1
	}
	t := r.take()
	n, err := strconv.ParseFloat(t.text, 64)
	if t.kind != kindNumber || err != nil {
		return 0, fmt.Errorf("want a number instead of %q", t.text)
	}
	return sign * n, nil
}

// text reads a string; strings that follow each other are one.
func (r *reading) text() (string, error) {
	if !r.is(kindString, "") {
		return "", fmt.Errorf("want a plain string instead of %q", r.take().text)
	}
	var text strings.Builder
	for r.is(kindString, "") {
		text.WriteString(r.take().text)
	}
	return text.String(), nil
}

var bys = map[string]string{
	"ID": "id", "CLASS_NAME": "class", "CSS_SELECTOR": "css", "XPATH": "xpath", "TAG_NAME": "tag", "NAME": "name", "LINK_TEXT": "link",
}

// ofDriver reads what follows the browser: find_element, find_elements or
// execute_script.
func (r *reading) ofDriver() (v value, done bool, err error) {
	if err = r.expect("."); err != nil {
		return v, false, err
	}
	switch t := r.take(); t.text {
	case "execute_script":
		return v, true, r.script()
	case "find_element", "find_elements":
		if err = r.expect("(", "By", "."); err != nil {
			return v, false, err
		}
		how := r.take()
		by, ok := bys[how.text]
		if !ok {
			return v, false, fmt.Errorf("the way By.%s is not known", how.text)
		}
		if err = r.expect(","); err != nil {
			return v, false, err
		}
		selector, err := r.text()
		if err == nil {
			err = r.closed()
		}
		return value{element: &element{By: by, Selector: selector}, list: t.text == "find_elements"}, false, err
	default:
		return v, false, fmt.Errorf("%s.%s is not known", r.driver, t.text)
	}
}

// script reads the arguments of execute_script.
func (r *reading) script() error {
	if err := r.expect("("); err != nil {
		return err
	}
	text, err := r.text()
	if err != nil {
		return err
	}
	s := step{Do: doScript, Script: text}
	for r.is(kindSign, ",") {
		r.take()
		if r.is(kindSign, ")") {
			break
		}
		e, err := r.argument()
		if err != nil {
			return err
		}
		s.On = append(s.On, *e)
	}
	r.steps = append(r.steps, s)
	return r.expect(")")
}

// indexed reads [number] after a list.
func (r *reading) indexed(v value) (value, error) {
	if !r.is(kindSign, "[") {
		return v, nil
	}
	if !v.list {
		return v, fmt.Errorf("only what find_elements returns has a number")
	}
	r.take()
	n, err := r.number()
	if err == nil {
		err = r.expect("]")
	}
	if err == nil && (n != float64(int(n)) || n < -1e4 || n > 1e4) {
		err = fmt.Errorf("%g is not a position", n)
	}
	if err != nil {
		return v, err
	}
	one := *v.element
	one.Index = int(n)
	return value{element: &one}, nil
}

// argument reads an element.
func (r *reading) argument() (*element, error) {
	t := r.take()
	var v value
	var err error
	switch known, ok := r.values[t.text]; {
	case t.kind == kindName && t.text == r.driver:
		if v, _, err = r.ofDriver(); err != nil {
			return nil, err
		}
	case t.kind == kindName && ok:
		v = known
	}
	if v.element != nil {
		v, err = r.indexed(v)
	}
	if err == nil && (v.element == nil || v.list) {
		err = fmt.Errorf("want an element instead of %q", t.text)
	}
	return v.element, err
}

// ofElement reads .click(), .clear() or .send_keys("…") after an element.
func (r *reading) ofElement(v value) (done bool, err error) {
	if !r.is(kindSign, ".") {
		return false, nil
	}
	if v.element == nil || v.list {
		return false, fmt.Errorf("a list of elements needs a number in brackets")
	}
	r.take()
	switch name := r.take(); name.text {
	case "click", "clear":
		r.steps = append(r.steps, step{Do: name.text, element: *v.element})
		return true, r.expect("(", ")")
	case "send_keys":
		if err = r.expect("("); err != nil {
			return true, err
		}
		text, err := r.text()
		if err != nil {
			return true, err
		}
		r.steps = append(r.steps, step{Do: doType, element: *v.element, Text: text})
		return true, r.closed()
	default:
		return false, fmt.Errorf(".%s is not known", name.text)
	}
}

// chained reads what follows ActionChains. done means that steps were made, or are
// kept for perform.
func (r *reading) chained(c *chain) (done bool, err error) {
	for r.is(kindSign, ".") {
		r.take()
		name := r.take().text
		if err = r.expect("("); err != nil {
			return true, err
		}
		done = true
		switch name {
		case "perform":
			r.steps = append(r.steps, c.steps...)
			c.steps = nil
		case "move_to_element":
			if c.last, err = r.argument(); err == nil {
				c.steps = append(c.steps, step{Do: doHover, element: *c.last})
			}
		case "click":
			if !r.is(kindSign, ")") {
				c.last, err = r.argument()
			}
			if err == nil && c.last == nil {
				err = fmt.Errorf("click needs an element")
			}
			if err == nil {
				c.steps = append(c.steps, step{Do: doClick, element: *c.last})
			}
		case "drag_and_drop":
			err = r.dragged(c)
		default:
			err = fmt.Errorf("ActionChains.%s is not known", name)
		}
		if err == nil {
			err = r.closed()
		}
		if err != nil {
			return true, err
		}
	}
	return done, nil
}

func (r *reading) dragged(c *chain) error {
	from, err := r.argument()
	if err == nil {
		err = r.expect(",")
	}
	if err != nil {
		return err
	}
	if c.last, err = r.argument(); err == nil {
		c.steps = append(c.steps, step{Do: doDrag, element: *from, To: c.last})
	}
	return err
}
