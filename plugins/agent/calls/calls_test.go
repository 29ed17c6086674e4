package calls

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// text returns calls as they are compared in tests.
func text(calls []Call) string {
	var b strings.Builder
	for _, c := range calls {
		b.WriteString(c.Name + "(")
		sep := ""
		for _, v := range c.Positional {
			fmt.Fprintf(&b, "%s%s", sep, v)
			sep = ", "
		}
		for _, n := range c.Named {
			fmt.Fprintf(&b, "%s%s=%s", sep, n.Name, n.Value)
			sep = ", "
		}
		b.WriteString(")\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func TestRepliesWithCalls(t *testing.T) {
	for _, tt := range []struct{ name, reply, want string }{
		{"one", `click('12')`, `click("12")`},
		{"several, with a comment", "click('a') # the button\n  fill('b', \"two words\")", "click(\"a\")\nfill(\"b\", \"two words\")"},
		{"on one line", `noop() noop(5)`, "noop()\nnoop(5)"},
		{"named", `scroll(0, dy=-20.5,)`, `scroll(0, dy=-20.5)`},
		{"literals", `f(True, False, None, [1, 'a',], (1, 2), ('x'), (1,), {'k': [16], 3: .5})`, `f(true, false, null, [1,"a"], [1,2], "x", [1], {"3":0.5,"k":[16]})`},
		{"three quotes", "fill('1', '''two\nlines, \\'quoted\\'''')", `fill("1", "two\nlines, 'quoted'")`},
		{"three quotes with an end", "fill('1', \"\"\"two\nlines\"\"\")", `fill("1", "two\nlines")`},
		{"escapes", `f('\n\t\\\'\"\x41\u00e9\U0001F600\q', "é")`, `f("\n\t\\'\"Aé😀\\q", "é")`},
		{"the last fence counts", "I think.\n```\nclick('1')\n```\nNo:\n```python\nclick('2')\n```\nDone.", `click("2")`},
		{"a fence on one line", "So ```click('1')```", `click("1")`},
		{"a fence without an end", "So\n```\nclick('1')", `click("1")`},
		{"a fence with JSON", "```json\n{\"action\": \"click('1')\"}\n```", `click("1")`},
		{"an action with arguments", `{"action": "click", "arguments": {"bid": "1"}}`, `click(bid="1")`},
		{"an action in line", `{"action": "click", "bid": "1", "button": "left"}`, `click(bid="1", button="left")`},
		{"an action as an object", `{"thought": "x", "action": {"name": "click", "args": ["1"]}}`, `click("1")`},
		{"a list of actions", `{"action": ["click('1')", {"name": "noop"}]}`, "click(\"1\")\nnoop()"},
		{"a function object", `{"type": "function", "function": {"name": "click", "arguments": "{\"bid\": \"1\"}"}}`, `click(bid="1")`},
		{"a list of function objects", `[{"name": "a"}, {"name": "b", "parameters": {"x": 1.0}}]`, "a()\nb(x=1.0)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(tt.reply)
			if tt.want == "" {
				if err == nil {
					t.Fatalf("got %s, want an error", text(got))
				}
				return
			}
			if err != nil || text(got) != tt.want {
				t.Errorf("got %s, %v; want %s", text(got), err, tt.want)
			}
		})
	}
}

func TestRepliesThatAreNoCalls(t *testing.T) {
	for _, tt := range []struct{ name, reply, says string }{
		{"nothing", " \n", ErrNone.Error()},
		{"a comment", "# nothing", ErrNone.Error()},
		{"prose", "I would click the button.", "want a call such as"},
		{"an expression", "click(1 + 2)", "want , or ) after an argument of click"},
		{"a call in an argument", "click(open('x'))", "want a text in quotes"},
		{"a name", "click(bid)", "want a text in quotes"},
		{"an attribute", "os.system('x')", "want a call such as"},
		{"positional after named", "click(bid='1', 'left')", "comes after one with a name"},
		{"no end", "click('1'", "the reply ends"},
		{"a text without an end", "click('1)", "has no end"},
		{"a text over two lines", "click('1\n2')", "ends at the end of the line"},
		{"a number that is none", "f(1e999)", "not a number"},
		{"a complex number", "f(1j)", "want , or )"},
		{"a bad escape", `f('\xzz')`, "is not an escape"},
		{"deep lists", "f(" + strings.Repeat("[", 100) + strings.Repeat("]", 100) + ")", "nested deeper"},
		{"deep JSON", strings.Repeat("[", 100) + strings.Repeat("]", 100), "nested deeper"},
		{"JSON without an action", `{"answer": 1}`, `neither "action" nor "name"`},
		{"broken JSON", `{"action": `, "not valid JSON"},
		{"JSON with a bad name", `{"name": "rm -rf"}`, "not the name of an action"},
		{"arguments that are none", `{"name": "a", "arguments": 7}`, "not an object"},
		{"too many", strings.Repeat("noop() ", MaxCalls+1), "more than 100 calls"},
		{"too long", strings.Repeat("x", MaxReply+1), "are allowed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(tt.reply)
			if err == nil || !strings.Contains(err.Error(), tt.says) || len(err.Error()) > 300 {
				t.Errorf("got %s, %v; want an error with %q", text(got), err, tt.says)
			}
		})
	}
	if _, err := Parse(""); !errors.Is(err, ErrNone) {
		t.Errorf("an empty reply: %v", err)
	}
}

func TestArgumentsByParameter(t *testing.T) {
	parameters := []string{"bid", "button", "modifiers"}
	for _, tt := range []struct{ reply, want, says string }{
		{`click('1')`, `{"bid":"1"}`, ""},
		{`click('1', modifiers=['Alt'])`, `{"bid":"1","modifiers":["Alt"]}`, ""},
		{`click('1', 'left', [], 4)`, "", "takes 3 arguments, and got 4"},
		{`click('1', bid='2')`, "", `got the argument "bid" twice`},
		{`click('1', buton='left')`, "", `did you mean "button"?`},
	} {
		calls, err := Parse(tt.reply)
		if err != nil {
			t.Fatal(err)
		}
		got, err := calls[0].Arguments(parameters)
		if tt.says != "" {
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: got %s, %v; want %q", tt.reply, got, err, tt.says)
			}
		} else if err != nil || string(got) != tt.want {
			t.Errorf("%s: got %s, %v; want %s", tt.reply, got, err, tt.want)
		}
	}
}

// What Parse returns is valid JSON within its limits, whatever the reply.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"click('1')", "```\nf(x=[1,{'a':None}])\n```", `{"action": ["a()", {"name": "b", "arguments": "{}"}]}`, `f('''\u12''')`, "f(r'\\')"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, reply string) {
		calls, err := Parse(reply)
		if (err == nil) != (len(calls) > 0) || len(calls) > MaxCalls {
			t.Fatalf("%d calls, %v", len(calls), err)
		}
		for _, c := range calls {
			if !isName(c.Name) {
				t.Fatalf("name %q", c.Name)
			}
			for _, v := range c.Positional {
				if !json.Valid(v) {
					t.Fatalf("%s is not JSON", v)
				}
			}
			for _, n := range c.Named {
				if !json.Valid(n.Value) {
					t.Fatalf("%s is not JSON", n.Value)
				}
			}
		}
	})
}
