package fields

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berth-eval/berth/verifiers/compare/internal/document"
)

func near(share float64) Settings { return Settings{Relative: &share, Minutes: -1} }

// passes reports whether a prediction passes.
func passes(t *testing.T, truth, prediction string, s Settings) bool {
	t.Helper()
	e, err := document.Parse(truth)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := document.FromAnswer(prediction)
	d, err := Compare(e, p, s)
	if err != nil {
		t.Fatalf("%s with %s: %v", truth, prediction, err)
	}
	return d.Empty()
}

// value is a case of one field.
type value struct {
	name, truth, prediction string
	s                       Settings
	want                    bool
}

var flight, exact = Settings{Minutes: 1}, Settings{Minutes: -1}

func TestScalars(t *testing.T) {
	t.Parallel()
	values(t, []value{
		{"equal text", `"LIS"`, `"LIS"`, exact, true},
		{"text in another case and with spaces", `"Lisbon "`, `" LISBON"`, exact, true},
		{"another text", `"LIS"`, `"OPO"`, exact, false},
		{"equal numbers", `3`, `3`, exact, true},
		{"a whole number and one with a point", `2`, `2.0`, exact, false},
		{"the same the other way round", `2.0`, `2`, exact, false},
		{"one with a point and a text", `2.0`, `"2.0"`, exact, true},
		{"one number written in two ways", `2.50`, `25e-1`, exact, true},
		{"a large number", `12345678901234567890123`, `12345678901234567890123`, exact, true},
		{"as Python writes it", `1e16`, `"1e+16"`, exact, true},
		{"and below that", `1e3`, `"1000.0"`, exact, true},
		{"and small ones", `0.00001`, `"1e-05"`, exact, true},
		{"with a tolerance", `2`, `2.0`, Settings{Relative: new(float64)}, true},
		{"another number", `3`, `4`, exact, false},
		{"a number as text", `3`, `"3"`, exact, true},
		{"a number as another text", `3`, `"3.0"`, exact, false},
		{"true", `true`, `true`, exact, true},
		{"true as text", `true`, `"True"`, exact, true},
		{"true is not 1", `true`, `1`, exact, false},
		{"null", `null`, `null`, exact, true},
		{"null as none", `null`, `"None"`, exact, true},
		{"null is not a value", `null`, `0`, exact, false},
		{"a number with a unit", `35000`, `"35000 ft"`, exact, true},
		{"a unit in the truth", `"35000 ft"`, `35000`, exact, true},
		{"a percent sign", `"12%"`, `12`, exact, true},
		{"units are cut and not converted", `"10 km"`, `"10 m"`, exact, true},
		{"so another unit of the same length fails", `"10 km"`, `"10000 m"`, exact, false},
		{"two words are not a unit", `10`, `"10 nautical miles"`, exact, false},
		{"a sign is not a unit", `10`, `"10 °"`, exact, false},
		{"commas count", `35000`, `"35,000"`, exact, false},
		{"the same commas", `"35,000"`, `"35,000 ft"`, exact, true},
		{"a negative number", `-4`, `"-4 C"`, exact, true},
		{"its sign", `-4`, `"4 C"`, exact, false},

		{"within the relative tolerance", `100`, `105`, near(0.05), true},
		{"below it", `100`, `95`, near(0.05), true},
		{"above the relative tolerance", `100`, `105.1`, near(0.05), false},
		{"too far below it", `100`, `94.9`, near(0.05), false},
		{"of a negative number", `-100`, `-105`, near(0.05), true},
		{"too far from a negative number", `-100`, `-106`, near(0.05), false},
		{"commas are removed", `35000`, `"35,500 ft"`, near(0.05), true},
		{"a decimal comma", `4.2`, `"4,2"`, near(0), true},
		{"a decimal comma in the truth", `"4,2 kg"`, `4.2`, near(0), true},
		{"a decimal comma is no thousands mark", `42`, `"4,2"`, near(0.001), false},
		{"nor with a unit", `42`, `"4,2 kg"`, near(0.001), false},
		{"nor before six digits", `123456`, `"1,23,456"`, near(0.001), false},
		{"a point as thousands mark", `2602.5`, `"2.602,5"`, near(0.001), true},
		{"a space", `2602.5`, `"2 602,5 m"`, near(0.001), true},
		{"a narrow space that does not break", `1234567`, `"1\u202f234\u202f567"`, near(0), true},
		{"an apostrophe", `2602.5`, `"2'602.5"`, near(0.001), true},
		{"a comma before three digits", `1234`, `"1,234"`, near(0), true},
		{"is not before a fraction", `1.234`, `"1,234"`, near(0), false},
		{"a point before three digits is", `1.234`, `"1.234"`, near(0), true},
		{"and is no thousands mark", `1234`, `"1.234"`, near(0.001), false},
		{"an exponent and a unit", `1500`, `"1.5e3 m"`, near(0), true},
		{"0 wants 0", `0`, `0.0`, near(0.05), true},
		{"0 wants nothing near 0", `0`, `0.001`, near(0.05), false},
		{"a text and a tolerance", `"A1"`, `"A2"`, near(0.05), false},
		{"without one the same number fails", `100`, `101`, exact, false},
		{"a number that is not finite", `100`, `1e999`, near(0.05), false},
		{"no tolerance for a text that is not a number", `100`, `"nan"`, near(0.05), false},
	})
}

func TestListsAndObjects(t *testing.T) {
	t.Parallel()
	values(t, []value{
		{"a list in any order", `["A", "B"]`, `["b", " A"]`, exact, true},
		{"a list of another length", `["A", "B"]`, `["A"]`, exact, false},
		{"a longer list", `["A"]`, `["A", "A"]`, exact, false},
		{"an element once and twice", `["A", "A", "B"]`, `["A", "B", "B"]`, exact, false},
		{"comma text", `["A", "B"]`, `"B, A"`, exact, true},
		{"comma text with another element", `["A", "B"]`, `"B, C"`, exact, false},
		{"no units in a list", `[10, 20]`, `["10 km", "20 km"]`, exact, false},
		{"numbers as text in a list", `[10, 20]`, `"20, 10"`, exact, true},
		{"no tolerance in a list", `[100]`, `[101]`, near(0.05), false},
		{"an empty list", `[]`, `[]`, exact, true},
		{"an empty list as text", `[]`, `""`, exact, true},
		{"an empty list and an element", `[]`, `["A"]`, exact, false},
		{"no list", `["A"]`, `{"A": 1}`, exact, false},
		{"a list for a text", `"A"`, `["A"]`, exact, false},
		{"objects in a list", `[{"id": "A", "n": 1}, {"id": "B", "n": 2}]`, `[{"id": "b", "n": 2}, {"id": "a", "n": 1}]`, exact, true},
		{"other objects in a list", `[{"id": "A", "n": 1}, {"id": "B", "n": 2}]`, `[{"id": "b", "n": 1}, {"id": "a", "n": 2}]`, exact, false},

		{"an object by its expected keys", `{"a": 1}`, `{"a": 1, "b": 2}`, exact, true},
		{"an object with another value", `{"a": 1}`, `{"a": 2}`, exact, false},
		{"an object without a key", `{"a": 1, "b": 2}`, `{"a": 1}`, exact, false},
		{"an object in an object", `{"a": {"b": [1]}}`, `{"a": {"b": "1"}}`, exact, true},
		{"no object", `{"a": 1}`, `1`, exact, false},
		{"a list of one-key objects is merged", `[{"a": 1}, {"b": 2}]`, `{"b": 2, "a": 1, "c": 3}`, exact, true},
		{"and compared", `[{"a": 1}, {"b": 2}]`, `{"b": 2, "a": 2}`, exact, false},
		{"on both sides", `[{"a": 1}, {"b": 2}]`, `[{"b": 2}, {"a": 1}]`, exact, true},
	})
}

func TestTimes(t *testing.T) {
	t.Parallel()
	values(t, []value{
		{"the same time", `"14:05"`, `"14:05"`, flight, true},
		{"a minute later", `"14:05"`, `"14:06"`, flight, true},
		{"a minute earlier", `"14:05"`, `"14:04:00 UTC"`, flight, true},
		{"more than a minute", `"14:05"`, `"14:06:01"`, flight, false},
		{"more than a minute earlier", `"14:05:00 UTC"`, `"14:03:59"`, flight, false},
		{"seconds and UTC", `"14:05:30 UTC"`, `"14:06:30utc"`, flight, true},
		{"no wrap at midnight", `"23:59:30"`, `"00:00:10"`, flight, false},
		{"no time in the truth", `"14:05 local"`, `"14:06 local"`, flight, false},
		{"no time in the prediction", `"14:05"`, `"about 14:05"`, flight, false},
		{"an hour that is none", `"24:00"`, `"24:01"`, flight, false},
		{"without the rule", `"14:05"`, `"14:06"`, exact, false},
	})
}

func values(t *testing.T, cases []value) {
	t.Helper()
	for _, tt := range cases {
		truth, prediction := fmt.Sprintf(`{"x": %s}`, tt.truth), fmt.Sprintf(`{"x": %s, "more": 1}`, tt.prediction)
		if got := passes(t, truth, prediction, tt.s); got != tt.want {
			t.Errorf("%s: %s with %s: %v", tt.name, tt.truth, tt.prediction, got)
		}
	}
}

func TestFields(t *testing.T) {
	t.Parallel()
	any2 := Settings{Minutes: -1, Unordered: []string{"planes", "first", "second", "absent"}}
	for _, tt := range []struct {
		name, truth, prediction string
		s                       Settings
		want                    bool
	}{
		{"all fields", `{"a": 1, "b": 2}`, `{"b": 2, "a": 1}`, Settings{}, true},
		{"one is wrong", `{"a": 1, "b": 2}`, `{"b": 3, "a": 1}`, Settings{}, false},
		{"one is missing", `{"a": 1, "b": 2}`, `{"a": 1}`, Settings{}, false},
		{"further keys", `{"a": 1}`, `{"a": 1, "b": 2}`, Settings{}, true},
		{"an empty truth is 0", `{}`, `{}`, Settings{}, false},
		{"no JSON", `{"a": 1}`, `a is 1`, Settings{}, false},
		{"an answer that is wrapped", `{"answer": "{\"a\": 1}"}`, `{"a": 1}`, Settings{}, true},
		{"a wrong one", `{"answer": "{\"a\": 1}"}`, `{"a": 2}`, Settings{}, false},
		{"an answer that is a value", `{"answer": "42"}`, `{"answer": 42}`, Settings{}, true},
		{"a truth as a list of one-key objects", `[{"a": 1}, {"b": 2}]`, `{"a": 1, "b": 2}`, Settings{}, true},

		{"at the tolerance of a field", `{"a": 100}`, `{"a": 150}`, Settings{Absolute: map[string]float64{"a": 50}}, true},
		{"below it", `{"a": 100}`, `{"a": "50"}`, Settings{Absolute: map[string]float64{"a": 50}}, true},
		{"above it", `{"a": 100}`, `{"a": 150.5}`, Settings{Absolute: map[string]float64{"a": 50}}, false},
		{"of another field", `{"a": 100}`, `{"a": 150}`, Settings{Absolute: map[string]float64{"b": 50}}, false},
		{"plain numbers only", `{"a": 100}`, `{"a": "150 ft"}`, Settings{Absolute: map[string]float64{"a": 50}}, false},
		{"no unit beside a tolerance", `{"a": 100}`, `{"a": "100 ft"}`, Settings{Absolute: map[string]float64{"a": 50}}, false},
		{"a comma between groups", `{"a": 1000}`, `{"a": "1,010"}`, Settings{Absolute: map[string]float64{"a": 50}}, true},
		{"a decimal comma", `{"a": 4}`, `{"a": "4,2"}`, Settings{Absolute: map[string]float64{"a": 0.5}}, true},
		{"which is no thousands mark", `{"a": 42}`, `{"a": "4,2"}`, Settings{Absolute: map[string]float64{"a": 1}}, false},
		{"a number that is not finite", `{"a": 100}`, `{"a": 1e999}`, Settings{Absolute: map[string]float64{"a": 50}}, false},
		{"equal beside a tolerance", `{"a": "n/a"}`, `{"a": "N/A"}`, Settings{Absolute: map[string]float64{"a": 50}}, true},

		{"a list of objects in any order", `{"planes": [{"id": "A", "alt": 10}, {"id": "B", "alt": 20}]}`, `{"planes": [{"id": "B", "alt": "20 ft", "x": 1}, {"id": "A", "alt": 10}]}`, any2, true},
		{"an object of it is wrong", `{"planes": [{"id": "A", "alt": 10}, {"id": "B", "alt": 20}]}`, `{"planes": [{"id": "B", "alt": 10}, {"id": "A", "alt": 10}]}`, any2, false},
		{"an object of it is missing", `{"planes": [{"id": "A"}, {"id": "B"}]}`, `{"planes": [{"id": "B"}]}`, any2, false},
		{"the pairing is not greedy", `{"planes": [{"id": "A"}, {"id": "A", "n": 1}]}`, `{"planes": [{"id": "A", "n": 1}, {"id": "A", "n": 2}]}`, any2, true},
		{"objects with one key that are the same", `{"planes": [{"id": "A"}, {"id": "B"}]}`, `{"planes": [{"id": "B"}, {"id": "A"}]}`, any2, true},
		{"one of them twice", `{"planes": [{"id": "A"}, {"id": "B"}]}`, `{"planes": [{"id": "A"}, {"id": "A"}]}`, any2, false},
		{"objects under keys in any order", `{"first": {"id": "A"}, "second": {"id": "B"}}`, `{"first": {"id": "b"}, "second": {"id": "a"}}`, any2, true},
		{"a wrong object under a key", `{"first": {"id": "A"}, "second": {"id": "B"}}`, `{"first": {"id": "b"}, "second": {"id": "b"}}`, any2, false},
		{"in order only without the setting", `{"first": {"id": "A"}, "second": {"id": "B"}}`, `{"first": {"id": "b"}, "second": {"id": "a"}}`, Settings{}, false},

		{"a time under another key", `{"arrival": "14:05"}`, `{"landing": "14:06"}`, Settings{Minutes: 1}, true},
		{"a time too far under another key", `{"arrival": "14:05"}`, `{"landing": "14:07"}`, Settings{Minutes: 1}, false},
		{"a wrong time, and the right one elsewhere", `{"arrival": "14:05"}`, `{"arrival": "15:00", "landing": "14:05"}`, Settings{Minutes: 1}, false},
		{"a missing field that is not a time", `{"arrival": "LIS"}`, `{"landing": "LIS"}`, Settings{Minutes: 1}, false},
		{"at more minutes", `{"a": "14:05"}`, `{"a": "14:08"}`, Settings{Minutes: 3}, true},
		{"above more minutes", `{"a": "14:05"}`, `{"a": "14:08:01"}`, Settings{Minutes: 3}, false},
	} {
		if got := passes(t, tt.truth, tt.prediction, tt.s); got != tt.want {
			t.Errorf("%s: %s with %s: %v", tt.name, tt.truth, tt.prediction, got)
		}
	}
}

func TestAGroundTruthWithoutFieldsIsAnError(t *testing.T) {
	t.Parallel()
	if d, err := Compare("x", document.Object{}, Settings{}); err == nil {
		t.Errorf("got %s", &d)
	}
}

// A list of more values than are paired is compared by its texts.
func TestLongLists(t *testing.T) {
	t.Parallel()
	var up, down []string
	for i := range 5000 {
		up = append(up, fmt.Sprint(i))
		down = append(down, fmt.Sprint(4999-i))
	}
	truth := `{"a": [` + strings.Join(up, ",") + `]}`
	if !passes(t, truth, `{"a": [`+strings.Join(down, ",")+`]}`, Settings{}) {
		t.Error("the same list in another order fails")
	}
	down[7] = "x1"
	if passes(t, truth, `{"a": ["`+strings.Join(down, `","`)+`"]}`, Settings{}) {
		t.Error("another list passes")
	}
}
