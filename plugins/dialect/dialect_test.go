package dialect

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Wherever a stream is cut, the same events come out, with all their bytes.
func TestEventsAreTheSameWhereverTheStreamIsCut(t *testing.T) {
	t.Parallel()
	stream := "event: a\ndata: {\"x\": \"Grüße 世界\"}\n\n: comment\n\ndata: one\r\ndata: two\r\n\r\ndata:[DONE]\n\ndata: cut"
	want := []string{"a|{\"x\": \"Grüße 世界\"}", "|", "|one\ntwo", "|[DONE]"}
	for size := 1; size <= len(stream); size++ {
		var got []string
		raw := ""
		var s Events
		for rest := stream; rest != ""; {
			n := min(size, len(rest))
			s.Write([]byte(rest[:n]), func(e Event) {
				got = append(got, e.Name+"|"+string(e.Data))
				raw += string(e.Raw)
			})
			rest = rest[n:]
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || raw+string(s.Rest()) != stream {
			t.Fatalf("in pieces of %d: %q, rest %q", size, got, s.Rest())
		}
	}
}

func TestAnEventThatIsTooLargeIsPassedOver(t *testing.T) {
	t.Parallel()
	var s Events
	var got []string
	do := func(e Event) { got = append(got, string(e.Data)) }
	s.Write([]byte("data: "), do)
	for range 40 {
		s.Write(make([]byte, 1<<20), do)
	}
	s.Write([]byte("\n\ndata: next\n\n"), do)
	if len(got) != 1 || got[0] != "next" {
		t.Errorf("got %d events, %.40q", len(got), got)
	}
}

func TestAnObjectKeepsWhatIsNotEdited(t *testing.T) {
	t.Parallel()
	in := `{ "b":1.50,  "a":{"y":[1, 2]}, "model":"x" }`
	o, err := ParseObject([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	if string(o.Bytes()) != in {
		t.Errorf("unedited: %s", o.Bytes())
	}
	if err = o.Merge(json.RawMessage(`{"a":{"z":true},"c":null}`)); err != nil {
		t.Fatal(err)
	}
	o.SetString("model", "m")
	o.Delete("b")
	want := `{"a":{"y":[1, 2],"z":true},"model":"m","c":null}`
	if string(o.Bytes()) != want {
		t.Errorf("edited: %s\nwant    %s", o.Bytes(), want)
	}
}

// Readers differ in which of two members of a name they take.
func TestAMemberThatIsThereTwiceLeavesOnce(t *testing.T) {
	t.Parallel()
	o, err := ParseObject([]byte(`{"a":1,"b":2,"a":3}`))
	if err != nil || string(o.Bytes()) != `{"a":3,"b":2}` {
		t.Errorf("%s, %v", o.Bytes(), err)
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{
		"12": 12, "12.0": 12, "1.2e1": 12, `"12"`: 12, "null": -7, "1e400": MaxTokens, "9223372036854775807": MaxTokens, "0": 0,
		"-1": -1, `"x"`: -1, "{}": -1, "true": -1, `"NaN"`: -1, `""`: -1,
	} {
		got := Tokens(-7)
		err := json.Unmarshal([]byte(in), &got)
		if (err != nil) != (want == -1) || err == nil && int64(got) != want {
			t.Errorf("%s is %d, %v; want %d", in, got, err, want)
		}
	}
	if got := Tokens(MaxTokens).Times(MaxTokens); got != MaxTokens {
		t.Errorf("a product is %d", got)
	}
}

// An event of very many lines is read in one go.
func TestAnEventOfManyLines(t *testing.T) {
	t.Parallel()
	var s Events
	var got int
	s.Write([]byte(strings.Repeat("data:x\n", 256<<10)+"\n"), func(e Event) { got = len(e.Data) })
	if got != 512<<10-1 {
		t.Errorf("%d bytes, want %d", got, 512<<10-1)
	}
}

func TestWhatIsNoObject(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", "[]", `"x"`, `{"a":`, `{"a":1`, `{"a":1} {}`, `{"a":1}x`, "\xff"} {
		if _, err := ParseObject([]byte(in)); !errors.Is(err, ErrNotObject) {
			t.Errorf("ParseObject(%q) = %v, want ErrNotObject", in, err)
		}
	}
}

func TestMergingTheSameChangesNothing(t *testing.T) {
	t.Parallel()
	o, err := ParseObject([]byte(`{"a":{"b":1},"c":2}`))
	if err != nil {
		t.Fatal(err)
	}
	if err = o.Merge(json.RawMessage(`{"a":{"b":1}}`)); err != nil || o.Changed() {
		t.Errorf("changed %v, %v", o.Changed(), err)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("data: x\n\nevent: y\r\ndata: z\r\n\r\n"), 3)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		var one, two Events
		var a, b []byte
		one.Write(in, func(e Event) { a = append(a, e.Raw...) })
		cut = max(0, min(len(in), cut))
		two.Write(in[:cut], func(e Event) { b = append(b, e.Raw...) })
		two.Write(in[cut:], func(e Event) { b = append(b, e.Raw...) })
		if string(append(a, one.Rest()...)) != string(in) || string(append(b, two.Rest()...)) != string(in) {
			t.Errorf("bytes were lost of %q cut at %d", in, cut)
		}
	})
}

// An object is taken apart as the standard library would.
func FuzzParseObject(f *testing.F) {
	for _, s := range []string{`{"a":"\\\"","b":[{"c":"}"}] , "d" : -1e5}`, `{}`, ` {"":null,"a\u0062":true}`, `{"x":{"y":{}}}`, `{"a":"\\"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var want map[string]json.RawMessage
		wrong := json.Unmarshal(in, &want) != nil || want == nil
		o, err := ParseObject(in)
		if (err != nil) != wrong {
			t.Fatalf("ParseObject(%q) = %v, the library refuses it: %v", in, err, wrong)
		}
		for name, v := range want {
			if string(o.Get(name)) != string(v) {
				t.Errorf("%q of %q is %q, want %q", name, in, o.Get(name), v)
			}
		}
	})
}
