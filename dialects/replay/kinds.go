package replay

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
)

// kind is a kind of values that change from run to run without anything that a
// run is about being different.
type kind struct {
	name    string // shown in place of a value
	pattern string
	is      func(s string) bool // whether s is one after all; nil: always
}

// Parts of the patterns of dates and times.
const (
	weekday = `(?:Mon|Tue|Tues|Wed|Wednes|Thu|Thur|Thurs|Fri|Sat|Satur|Sun)(?:day)?`
	month   = `(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:t(?:ember)?)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)`
	clock   = `[0-2]?\d:[0-5]\d(?::[0-5]\d(?:[.,]\d+)?)?(?: ?[AP]M\b)?`
	zone    = `(?: ?(?:Z|UTC|GMT|[A-Z]{3,4}|[+-]\d{2}:?\d{2})\b)?`
)

// kinds are tried in this order at each place of a text.
var kinds = []kind{
	{"id", `\b[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}\b`, nil},
	{"time", `\b(?:` + weekday + `,? )?\d{4}[-/]\d{2}[-/]\d{2}(?:[T _-]\d{2}[:-]?\d{2}(?:[:-]?\d{2}(?:[.,]\d+)?)?` + zone + `)?`, nil},
	{"time", `\b(?:` + weekday + `,? )?(?:` + month + `\.? {1,2}\d{1,2}\b(?:,? {1,2}\d{4}\b)?|\d{1,2} ` + month + `,? \d{4}\b)(?:,? ` + clock + zone + `(?: \d{4}\b)?)?`, nil},
	{"time", `\b(?:\d{1,2}/\d{1,2}/\d{4}|\d{1,2}\.\d{1,2}\.20\d{2})\b`, nil},
	{"time", `\b[0-2]?\d:[0-5]\d(?::[0-5]\d(?:[.,]\d+)?(?: ?[AP]M\b)?| ?[AP]M\b)`, nil},
	{"time", `(?:^|[\s(])[0-2]\d:[0-5]\d(?::[0-5]\d(?:[.,]\d+)?)?(?: ?[AP]M)?\b`, nil}, // and not a line and a column
	{"time", `\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b`, nil},
	{"time", `\b1[5-9]\d{8}(?:\d{3}|\d{6}|\d{9}|\.\d+)?\b`, nil}, // seconds since 1970, or parts of them
	{"duration", `\b(?:\d+m)?\d+\.\d+ ?(?:[nµu]?s|ms|sec|secs|seconds?|min|minutes?|h|hours?)\b`, nil},
	{"duration", `\b\d+ ?(?:[nµu]s|ms|milliseconds?)\b`, nil},
	{"duration", `\b(?:Wall time|Duration|Elapsed|Took|wall time|duration|elapsed|took)[:=]? \d+(?:\.\d+)? ?s(?:ec|econds?)?\b`, nil},
	{"host", `@[0-9A-Za-z][0-9A-Za-z.-]*:[~/]`, nil}, // of a shell's prompt
	{"host", `\b[Hh]ost ?[Nn]ame: ?[0-9A-Za-z.-]+`, nil},
	{"system", `\bLinux (?:[0-9A-Za-z.-]+ )?\d+\.\d+\.\d+[0-9A-Za-z.+~-]*`, nil},
	{"port", `\b(?:127\.0\.0\.1|localhost):[3-6]\d{4}\b`, nil}, // that the system chose
	{"process", `\b(?:[Pp][GPgp]?[Ii][Dd]s?|[Pp]rocess|[Ss]ession)(?: [Ii][Dd])?[ :=#]{1,3}\d+(?:, \d+)*\b`, nil},
	{"process", `\[\d+\][+-]? +\d{2,}\b`, nil}, // a job of a shell
	{"path", `/tmp/[0-9A-Za-z_.-]*[0-9A-Za-z_]{6,}`, random},
	{"id", `\bChunk ID: [0-9a-f]{6}\b`, nil}, // of Codex, may have digits only
	{"id", `\b(?:ID|Id|id)[:=] ?[0-9A-Za-z_-]{4,}\b`, random},
	{"id", `\b[a-z]{2,12}[_-][0-9A-Za-z_-]{6,64}\b`, random},
	{"id", `\b[0-9a-f]{7,128}\b`, random},
	{"id", `\b[0-9A-Za-z_-]{20,64}\b`, random},
}

var anyKind = func() *regexp.Regexp {
	patterns := make([]string, len(kinds))
	for i, k := range kinds {
		patterns[i] = "(" + k.pattern + ")"
	}
	return regexp.MustCompile(strings.Join(patterns, "|"))
}()

// random reports whether s looks as if a computer had thrown dice for it: after
// its last separator it has digits among its letters, or capitals among its
// small letters.
func random(s string) bool {
	s = s[strings.LastIndexAny(s, "_-.:/= ")+1:]
	var digits, small, capital bool
	for i := range len(s) {
		c := s[i]
		digits = digits || c >= '0' && c <= '9'
		small = small || c >= 'a' && c <= 'z'
		capital = capital || i > 0 && c >= 'A' && c <= 'Z'
	}
	return digits && (small || capital) || small && capital
}

// unescape takes the escapes of JSON away that a text has when it is itself a
// text of JSON: the letter of one would belong to the value after it.
var unescape = strings.NewReplacer(`\n`, "\n", `\r`, "\r", `\t`, "\t", `\"`, `"`)

// control matches the control sequences of a terminal. The last letter of one would
// belong to the value after it, too.
var control = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

// plain returns a text with the name of its kind in place of each value that
// changes from run to run.
func plain(s string) string {
	s = control.ReplaceAllStringFunc(unescape.Replace(s), func(c string) string { return c + " " })
	found := anyKind.FindAllStringSubmatchIndex(s, -1)
	if found == nil {
		return s
	}
	var b strings.Builder
	at := 0
	for _, f := range found {
		k := 0
		for f[2*(k+1)] < 0 {
			k++
		}
		value := s[f[0]:f[1]]
		if is := kinds[k].is; is != nil && !is(value) {
			continue
		}
		if strings.ContainsAny(value[:1], " \t\n\r(") { // before a time
			f[0]++
		}
		b.WriteString(s[at:f[0]])
		b.WriteString("‹" + kinds[k].name + "›")
		at = f[1]
		if last := value[len(value)-1]; last == '~' || last == '/' {
			at-- // of the path in a prompt
		}
	}
	b.WriteString(s[at:])
	return b.String()
}

// plainly returns JSON without the values that change from run to run, in one
// way of writing it. Text that is not JSON is returned as it is.
func plainly(body []byte) []byte {
	var v any
	if decode(body, &v) != nil {
		return body
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(plainValue(v)) != nil {
		return body
	}
	return b.Bytes()
}

func plainValue(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for n, w := range x {
			x[n] = plainValue(w)
		}
	case []any:
		for i, w := range x {
			x[i] = plainValue(w)
		}
	case string:
		return plain(x)
	case json.Number:
		if p := plain(x.String()); p != x.String() {
			return p
		}
	}
	return v
}
