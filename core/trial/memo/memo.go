// Package memo remembers what plugins answered to questions that the attempts of
// a run ask again and again.
//
// It must not know what is asked.
package memo

import (
	"encoding/json"
	"sync"

	"github.com/berth-eval/berth/core/record"
)

// Memo keeps what plugins answered to Check, which is a pure function of what is
// asked: the attempts of a run ask the same again and again. Only answers that
// let an attempt go on are kept. The zero value is ready; nil keeps nothing. Safe
// for concurrent use.
type Memo struct{ answers sync.Map }

// Key names a question to a plugin; empty when it cannot be named.
func (m *Memo) Key(of record.PluginUsed, question any) string {
	if m == nil || of.Digest == "" {
		return ""
	}
	b, err := json.Marshal(question)
	if err != nil {
		return ""
	}
	return of.Kind + "\x00" + of.Name + "\x00" + of.Digest + "\x00" + string(b)
}

// Answer is the answer to a question if it is known, and else that of ask,
// which is kept if good says so.
func Answer[T any](m *Memo, key string, good func(T) bool, ask func() (T, error)) (T, error) {
	if key == "" {
		return ask()
	}
	if v, ok := m.answers.Load(key); ok {
		if answer, ok := v.(T); ok {
			return answer, nil
		}
	}
	answer, err := ask()
	if err == nil && good(answer) {
		m.answers.Store(key, answer)
	}
	return answer, err
}
