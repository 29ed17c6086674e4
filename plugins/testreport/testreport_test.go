package testreport_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/testreport"
)

// results are the tests of a report, in short.
func results(r *testreport.Report) string {
	var all []string
	for _, c := range r.Tests {
		all = append(all, strings.TrimSuffix(fmt.Sprintf("%s %s (%s)", c.Name, c.Result(), c.Note), " ()"))
	}
	return strings.Join(all, "; ")
}

func TestReports(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text              string
		passed, failed, skipped int
		tests                   string
	}{
		{
			name:   "CTRF of pytest",
			text:   `{"results":{"tool":{"name":"pytest"},"summary":{"tests":5,"passed":1,"failed":1,"pending":1,"skipped":1,"other":1},"tests":[{"name":"t.py::a","status":"passed","duration":1},{"name":"b","status":"failed","message":"assert 1 == 2\n+ 1"},{"name":"c","status":"skipped"},{"name":"d","status":"pending"},{"name":"e","status":"other","message":7}]}}`,
			passed: 1, failed: 2, skipped: 2,
			tests: "t.py::a passed; b failed (failed: assert 1 == 2 + 1); c skipped (skipped); d skipped (pending); e failed (other)",
		},
		{name: "CTRF with a BOM", text: "\ufeff" + `{"results":{"tests":[{"name":"a","status":"Passed"}]}}`, passed: 1, tests: "a passed"},
		{name: "CTRF without tests", text: `{"results":{"summary":{"tests":0,"passed":0,"failed":0},"tests":[]}}`},
		{name: "CTRF with counts only", text: `{"results":{"summary":{"tests":4,"passed":2.0,"failed":1,"other":1,"skipped":3,"start":1e12,"pending":"x"}}}`, passed: 2, failed: 2, skipped: 3},
		{name: "hostile names", text: `{"results":{"tests":[{"name":"a\u001b[2J\u0000\nb\u202e","status":"passed"},{"name":"","status":""}]}}`, passed: 1, failed: 1, tests: "a [2J b passed; (no name) failed"},
		{
			name: "JUnit of pytest",
			text: `<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="pytest" errors="1" tests="4"><testcase classname="t" name="a" time="0.1" /><testcase classname="t" name="b"><failure message="assert 1 &lt; 0">text</failure></testcase>` +
				`<testcase name="c"><skipped type="pytest.skip" message="no GPU"/></testcase><testcase classname="t" name="d"><skipped/><error message="teardown"/></testcase></testsuite></testsuites>`,
			passed: 1, failed: 2, skipped: 1, tests: "t.a passed; t.b failed (failure: assert 1 < 0); c skipped (skipped: no GPU); t.d failed (error: teardown)",
		},
		{name: "JUnit of one suite", text: `<testsuite><testcase name="a"/></testsuite>`, passed: 1, tests: "a passed"},
		{name: "JUnit in latin-1", text: "<?xml version='1.0' encoding='ISO-8859-1'?><testsuite><testcase name='caf\xe9'/></testsuite>", passed: 1, tests: "caf? passed"},
		{name: "JUnit without tests", text: `<testsuites tests="0"></testsuites>`},
	} {
		r, err := testreport.Read([]byte(tt.text))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if r.Passed != tt.passed || r.Failed != tt.failed || r.Skipped != tt.skipped || results(r) != tt.tests {
			t.Errorf("%s: %d passed, %d failed, %d skipped: %s", tt.name, r.Passed, r.Failed, r.Skipped, results(r))
		}
	}
}

func TestFilesThatAreNoReport(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing": "", "null": "null", "a list": "[]", "another object": `{"tests": 3}`, "cut": `{"results":{"tests":[{"name":"a"`,
		"tests that are no list": `{"results":{"tests":{"a":1}}}`, "a deep one": strings.Repeat(`{"results":`, 20_000),
		"HTML": "<html><testcase/></html>", "cut XML": "<testsuite><testcase name='a'/>", "an entity": `<!DOCTYPE x [<!ENTITY a "b">]><testsuite><testcase name="&a;"/></testsuite>`, "text": "1 passed",
	} {
		if r, err := testreport.Read([]byte(text)); err == nil {
			t.Errorf("%s is read as %+v", name, r)
		}
	}
}

// A report may be as large as allowed, and the record stays small.
func TestLargeReports(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 5000)
	all := strings.Repeat(`<testcase name="a"/>`, 5000) + `<testcase name="` + long + `"><failure message="` + long + `"/></testcase>`
	r, err := testreport.Read([]byte("<testsuite>" + strings.Repeat("<x>", 50_000) + all + strings.Repeat("</x>", 50_000) + "</testsuite>"))
	if err != nil || r.Passed != 5000 || r.Failed != 1 || len(r.Tests) != testreport.MaxTests {
		t.Fatalf("%v, %+v", err, r)
	}
	if first := r.Tests[0]; first.Result() != "failed" || len(first.Name) > 200 || len(first.Note) > 200 || !strings.HasSuffix(first.Name, "é…") {
		t.Errorf("the first is %+v, want the failed one with short texts", first)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"results":{"tests":[{"name":"a","status":"passed"}]}}`))
	f.Add([]byte(`<testsuite><testcase name="a"><failure message="b"/></testcase></testsuite>`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := testreport.Read(data)
		if err != nil {
			return
		}
		for _, c := range r.Tests {
			if c.Name == "" || strings.ContainsAny(c.Name+c.Note, "\n\x1b\x00") || c.Passed && c.Skipped {
				t.Errorf("%+v", c)
			}
		}
	})
}
