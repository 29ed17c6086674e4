package scripted

import "testing"

// A file of replies is refused, or each of its replies is one that can be sent.
func FuzzParse(f *testing.F) {
	f.Add([]byte("replies:\n  - text: hello\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(text)
		if (s == nil) != (err != nil) {
			t.Fatalf("%v, %v", s, err)
		}
		if s == nil {
			return
		}
		for i := range s.replies {
			r := &s.replies[i]
			if err := r.check(); err != nil || r.Delay < 0 || r.Pace < 0 {
				t.Errorf("reply %d: %+v: %v", i+1, r, err)
			}
		}
	})
}
