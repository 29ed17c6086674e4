package redact_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/redact"
	"github.com/berth-eval/berth/internal/testlevel"
)

const canary = `ca"na<ry>-1234`

func TestTextLosesSecretsAndNothingElse(t *testing.T) {
	t.Parallel()
	r := redact.New("abcdefgh", "abcdefghij", "1", "true")
	for in, want := range map[string]string{
		"":                       "",
		"1 is true":              "1 is true", // too short to be told from chance
		"x abcdefghij y":         "x " + redact.Mark + " y",
		"abcdefgh abcdefghij":    redact.Mark + " " + redact.Mark,
		"abcdefg":                "abcdefg",
		"token=abcdefgh&rest=ij": "token=" + redact.Mark + "&rest=ij",
	} {
		if got := r.Text(in); got != want {
			t.Errorf("Text(%q) = %q; want %q", in, got, want)
		}
	}
	var none *redact.Redactor
	if got := none.Text("abcdefgh"); got != "abcdefgh" {
		t.Errorf("a nil Redactor made %q", got)
	}
}

func TestJSONStaysValidWhateverTheSecret(t *testing.T) {
	t.Parallel()
	r := redact.New(canary, "87654321")
	in := map[string]any{canary: []any{canary, 87654321, "x" + canary + "y", nil, 1.5}, "n": json.Number("12345678901234567890")}
	b, err := r.JSON(in)
	if err != nil || !json.Valid(b) {
		t.Fatalf("JSON = %s, %v", b, err)
	}
	var back any
	testlevel.Must(t, json.Unmarshal(b, &back))
	plain, err := json.Marshal(back)
	testlevel.Must(t, err)
	for _, secret := range []string{canary, "ca\\\"na", "87654321", `\u003cry\u003e-1234`} {
		if strings.Contains(string(b), secret) || strings.Contains(string(plain), secret) {
			t.Errorf("%q is still in %s", secret, b)
		}
	}
	if !strings.Contains(string(b), "12345678901234567890") {
		t.Errorf("a long number was spoilt: %s", b)
	}
}

func TestWriterMasksAcrossWrites(t *testing.T) {
	t.Parallel()
	r := redact.New("secret-one", "another-secret", "aaaaaaaaab")
	in := strings.Repeat("x", 100) + "secret-one" + "another-secretsecret-one" + "secret-on" + strings.Repeat("a", 30) + "b\x00\xff"
	want := in
	for _, s := range []string{"another-secret", "secret-one", "aaaaaaaaab"} {
		want = strings.ReplaceAll(want, s, strings.Repeat("*", len(s)))
	}
	for range 200 {
		var out bytes.Buffer
		w := r.Writer(&out)
		for rest := in; rest != ""; {
			n := min(1+rand.IntN(12), len(rest))
			if _, err := w.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		testlevel.Must(t, w.Close())
		if out.String() != want || w.Hits() != 4 {
			t.Fatalf("got %q with %d hits;\nwant %q with 4", out.String(), w.Hits(), want)
		}
	}
}

func TestValueGoesRoundTrip(t *testing.T) {
	t.Parallel()
	type thing struct {
		A string
		B []int
	}
	got, err := redact.Value(redact.New(canary), thing{A: "has " + canary, B: []int{1, 2}})
	if err != nil || got.A != "has "+redact.Mark || len(got.B) != 2 {
		t.Errorf("Value = %+v, %v", got, err)
	}
}

// A secret may be a number, or a part of a time. A result must stay readable then.
func TestValueKeepsItsTypesWhateverTheSecret(t *testing.T) {
	t.Parallel()
	type thing struct {
		Text string
		At   time.Time
		N    int64
		F    *float64
	}
	at := time.Date(2026, 11, 24, 13, 0, 0, 123, time.UTC)
	in := thing{Text: "on 2026-11-24, 87654321", At: at, N: 9987654321, F: new(87654321.5)}
	got, err := redact.Value(redact.New("2026-11-24", "87654321"), in)
	testlevel.Must(t, err)
	if got.Text != "on "+redact.Mark+", "+redact.Mark || !got.At.Equal(at) || got.N != 0 || *got.F != 0 {
		t.Errorf("Value = %+v, %g", got, *got.F)
	}
}

// What is held back, because it may be the start of a secret, is written in the end,
// and nothing else is held back.
func TestWhatLooksLikeASecretIsNotLost(t *testing.T) {
	t.Parallel()
	const secret = "key-4f1d9b7ae2c05368"
	for _, text := range []string{secret[:len(secret)-1], "k", secret[:5] + secret[:7], strings.Repeat("key-", 9)} {
		for size := 1; size <= len(text); size++ {
			var out strings.Builder
			w := redact.New(secret, "another-secret-of-this-session").Writer(&out)
			for rest := text + "."; rest != ""; {
				n := min(size, len(rest))
				_, err := w.Write([]byte(rest[:n]))
				testlevel.Must(t, err)
				rest = rest[n:]
			}
			if got := out.String(); got != text+"." {
				t.Errorf("%q in pieces of %d became %q", text, size, got)
			}
		}
	}
}

// However output is cut into pieces, a secret in it is not written, and its length
// stays.
func FuzzWriter(f *testing.F) {
	const secret = "canary-4f1d9b7ae2c05368"
	f.Add([]byte("a canary-4f1d"), []byte("9b7ae2c05368 b"), 3)
	f.Fuzz(func(t *testing.T, before, after []byte, cut int) {
		whole := append(append(append([]byte{}, before...), secret...), after...)
		cut = max(0, min(cut, len(whole)))
		var out bytes.Buffer
		w := redact.New(secret, "second-secret-value").Writer(&out)
		for _, piece := range [][]byte{whole[:cut], whole[cut:]} {
			if _, err := w.Write(piece); err != nil {
				t.Fatal(err)
			}
		}
		testlevel.Must(t, w.Close())
		if strings.Contains(out.String(), secret) || out.Len() != len(whole) || w.Hits() == 0 {
			t.Errorf("%q became %q", whole, out.Bytes())
		}
	})
}
