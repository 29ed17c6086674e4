package config

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/matrix"
)

// key names a cell: "agent=a,effort=low".
func key(axes []matrix.Axis, p matrix.Point) string {
	parts := make([]string, len(p))
	for i, v := range p {
		text := v.Text
		if text == "" || strings.ContainsAny(text, ",=\"") || strconv.Quote(text) != `"`+text+`"` {
			text = strconv.Quote(text)
		}
		parts[i] = axes[i].Name + "=" + text
	}
	return strings.Join(parts, ",")
}

const maxSlug = 60

// slug makes a name for files of text, unique among those that are taken.
func slug(text, key string, taken map[string]bool) string {
	s := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, text), ".-_")
	if s == "" || len(s) > maxSlug || taken[s] {
		sum := sha256.Sum256([]byte(key + "\x00" + text))
		s = strings.TrimLeft(s[:min(len(s), maxSlug-13)]+"-"+hex.EncodeToString(sum[:6]), "-")
	}
	taken[s] = true
	return s
}
