package dialect

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// MaxTokens is the largest number of tokens that is accepted: more than any
// model uses, and small enough that sums never overflow.
const MaxTokens = 1 << 40

// Tokens is a number of tokens as providers and clients write it: 12, 12.0,
// 1.2e1 or "12". A number above MaxTokens becomes MaxTokens; a negative number,
// or a value that is not a number, is an error. Null changes nothing.
type Tokens int64

// UnmarshalJSON implements json.Unmarshaler.
func (t *Tokens) UnmarshalJSON(b []byte) error {
	s := strings.Trim(string(b), `"`)
	if s == "null" {
		return nil
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || math.IsNaN(n) || n < 0 {
		return fmt.Errorf("%.40q is not a number of tokens", s)
	}
	*t = Tokens(min(n, MaxTokens))
	return nil
}

// Times multiplies t and n; the result is at most MaxTokens. Neither may be
// negative.
func (t Tokens) Times(n Tokens) Tokens {
	if n > 0 && t > MaxTokens/n {
		return MaxTokens
	}
	return t * n
}
