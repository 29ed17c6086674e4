package document

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestWhereTheJSONOfAnAnswerIs(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ text, want string }{
		"a fence marked as json":             {"Result:\n```json\n{\"a\": 1}\n```\nDone.", `{"a":1}`},
		"a fence on one line":                {"```json {\"a\": 1}```", `{"a":1}`},
		"marked fence before the others":     {"{\"a\": 3}\n```\n{\"a\": 2}\n```\n```JSON\n{\"a\": 1}\n```", `{"a":1}`},
		"a marked fence that is not JSON":    {"```json\nnone\n```\n```json\n{\"a\": 1}\n```", `{"a":1}`},
		"a fence in a string of the fence":   {"```json\n{\"a\": \"x```y\"}\n```", "{\"a\":\"x```y\"}"},
		"a call":                             {`send_msg_to_user("{\"a\": \"x\\ny\"}")`, `{"a":"x\ny"}`},
		"a call with single quotes":          {`I say: send_msg_to_user('{"a": "it\'s"}')`, `{"a":"it's"}`},
		"a call with three quotes":           {`send_msg_to_user("""{"a": 1}""")`, `{"a":1}`},
		"a call with a name":                 {`send_msg_to_user(text="{\"a\": 1}")`, `{"a":1}`},
		"a call before the whole text":       {`{"a": 2} send_msg_to_user("{\"a\": 1}")`, `{"a":1}`},
		"a call without its end":             {`send_msg_to_user("{\"a\": 1}`, `{"a":1}`},
		"a call with a fence":                {"send_msg_to_user('```json\\n{\"a\": 1}\\n```')", `{"a":1}`},
		"a call with words":                  {`send_msg_to_user('It is {"a": 1}.')`, `{"a":1}`},
		"a code point":                       {`send_msg_to_user('{"a": "\u00e9"}')`, `{"a":"é"}`},
		"the whole text":                     {" {\"a\": 1}\n", `{"a":1}`},
		"any fence":                          {"Look: {x}\n```\n{\"a\": 1}\n```", `{"a":1}`},
		"the first balanced object":          {`The answer {"a": {"b": 1}} and {"a": 2}`, `{"a":{"b":1}}`},
		"braces in strings do not count":     {`So: {"a": "}{", "b": 1} }`, `{"a":"}{","b":1}`},
		"a quote in a string":                {`So: {"a": "\"}"}`, `{"a":"\"}"}`},
		"an object that is not JSON before":  {`Use {name} as in {"a": 1}`, `{"a":1}`},
		"an object that is never closed":     {`{ and {"a": 1}`, `{"a":1}`},
		"a list of one-key objects":          {`[{"a": 1}, {"b": 2}]`, `{"a":1,"b":2}`},
		"a list of one-key objects, a fence": {"```json\n[{\"a\": 1}]\n```", `{"a":1}`},
		"nothing":                            {"I am done.", "null"},
		"a list":                             {"[1, 2]", "null"},
		"a number":                           {"42", "null"},
		"NaN":                                {`{"a": NaN}`, "null"},
		"half an object":                     {`{"a": 1`, "null"},
		"a trailing comma":                   {`{"a": 1,}`, "null"},
	} {
		got, _ := FromAnswer(tt.text)
		b, err := json.Marshal(got)
		if err != nil || string(b) != tt.want {
			t.Errorf("%s: %s, %v; want %s", name, b, err, tt.want)
		}
	}
}

func TestAFileIsReadAsAWhole(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ text, want string }{
		"a fence in a text of an export": {"{\"a\": \"```json\\n{\\\"a\\\": 2}\\n```\"}", "{\"a\":\"```json\\n{\\\"a\\\": 2}\\n```\"}"},
		"a list":                         {"[1]", "[1]"},
		"JSON in a JSON text":            {`"{\"a\": 1}"`, `{"a":1}`},
		"JSON in a page":                 {"Export\n{\"a\": 1}", `{"a":1}`},
		"nothing":                        {"none", "null"},
		"a text":                         {`"none"`, "null"},
	} {
		got, _ := FromFile(tt.text)
		b, err := json.Marshal(got)
		if err != nil || string(b) != tt.want {
			t.Errorf("%s: %s, %v; want %s", name, b, err, tt.want)
		}
	}
}

func TestDocumentsAreBounded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ text, err string }{
		"deep":                {strings.Repeat("[", 500) + strings.Repeat("]", 500), ""},
		"too deep":            {strings.Repeat("[", 501) + strings.Repeat("]", 501), "500 levels"},
		"brackets in strings": {`"` + strings.Repeat("[", 1000) + `"`, ""},
		"many values":         {"[0" + strings.Repeat(",0", 900_000) + "]", ""},
		"too many values":     {"[0" + strings.Repeat(",0", 1_000_000) + "]", "1000000 values"},
		"too long":            {`"` + strings.Repeat("x", MaxBytes) + `"`, "bytes"},
		"two values":          {`1 2`, "follows"},
		"empty":               {" ", "empty"},
		"a huge number":       {`1e999`, ""},
	} {
		_, err := Parse(tt.text)
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want %q", name, err, tt.err)
		}
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"1", "1.0", true},
		{"1e2", "100", true},
		{"1", "2", false},
		{"1e999", "1e999", true},
		{"1e999", "2e999", false},
		{"9007199254740993", "9007199254740992", false},
		{"9007199254740993", "9007199254740993", true},
		{"-0", "0", true},
	} {
		if got := SameNumber(json.Number(tt.a), json.Number(tt.b)); got != tt.same {
			t.Errorf("SameNumber(%s, %s) = %v", tt.a, tt.b, got)
		}
	}
	if _, ok := Number(json.Number("1e999")); ok {
		t.Error("an infinite number is a number")
	}
	for _, tt := range []struct {
		a, b, by float64
		want     bool
	}{{10, 10.3, 0.3, true}, {10, 10.31, 0.3, false}, {0, 0, 0, true}, {1, 1.001, 0, false}} {
		if got := Within(tt.a, tt.b, tt.by); got != tt.want {
			t.Errorf("Within(%g, %g, %g) = %v", tt.a, tt.b, tt.by, got)
		}
	}
}

func TestAGroundTruthIsUnwrapped(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ truth, prediction, want, err string }{
		"its keys fit better":          {`{"answer": "{\"a\": 1}"}`, `{"a": 2}`, `{"a":1}`, ""},
		"its keys fit as well":         {`{"answer": "{\"a\": 1}"}`, `{"b": 2}`, `{"a":1}`, ""},
		"both have a key":              {`{"answer": "{\"a\": 1}"}`, `{"a": 1, "answer": 1}`, `{"a":1}`, ""},
		"the outer key fits better":    {`{"answer": "{\"a\": 1}"}`, `{"answer": 2}`, `{"answer":"{\"a\": 1}"}`, ""},
		"no prediction":                {`{"answer": "{\"a\": 1}"}`, `null`, `{"a":1}`, ""},
		"an object and no text":        {`{"answer": {"a": 1}}`, `{"a": 2}`, `{"a":1}`, ""},
		"no object":                    {`{"answer": "42"}`, `{"a": 2}`, `{"answer":"42"}`, ""},
		"a text":                       {`{"answer": "blue"}`, `{"a": 2}`, `{"answer":"blue"}`, ""},
		"other keys":                   {`{"answer": "{\"a\": 1}", "b": 1}`, `{"a": 2}`, `{"answer":"{\"a\": 1}","b":1}`, ""},
		"a list of one-key objects":    {`[{"a": 1}, {"b": 2}]`, `{}`, `{"a":1,"b":2}`, ""},
		"such a list in the answer":    {`{"answer": "[{\"a\": 1}, {\"b\": 2}]"}`, `{}`, `{"a":1,"b":2}`, ""},
		"one key twice is not merged":  {`[{"a": 1}, {"a": 2}]`, `{}`, `[{"a":1},{"a":2}]`, ""},
		"two keys are not merged":      {`[{"a": 1, "b": 2}]`, `{}`, `[{"a":1,"b":2}]`, ""},
		"a trailing comma is an error": {`{"answer": "{\"a\": 1,}"}`, `{}`, "", "not JSON"},
	} {
		truth, err := Parse(tt.truth)
		if err != nil {
			t.Fatal(err)
		}
		prediction, err := Parse(tt.prediction)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Unwrapped(truth, prediction)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v, want %q", name, err, tt.err)
			}
			continue
		}
		want, bad := Parse(tt.want)
		if err != nil || bad != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v; want %s", name, got, err, tt.want)
		}
	}
}
