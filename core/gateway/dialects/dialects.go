// Package dialects is the list of the dialects that the gateway speaks. A new
// one is a folder beside it and a line here.
//
// It must hold nothing but the list and how one is found in it.
package dialects

import (
	"net/http"

	"github.com/berth-eval/berth/core/gateway/anthropic"
	"github.com/berth-eval/berth/core/gateway/dialect"
	"github.com/berth-eval/berth/core/gateway/gemini"
	"github.com/berth-eval/berth/core/gateway/openai"
	"github.com/berth-eval/berth/core/gateway/openaichat"
	"github.com/berth-eval/berth/plugins/model"
)

// all are the dialects. The last one takes what fits several.
var all = []dialect.Dialect{anthropic.Dialect{}, openai.Dialect{}, gemini.Dialect{}, openaichat.Dialect{}}

// Usual is what a scripted model speaks to whoever does not say what it speaks.
const Usual = model.DialectOpenAIChat

// Named is the dialect of that name, or nil.
func Named(name model.Dialect) dialect.Dialect {
	for _, d := range all {
		if d.Name() == name {
			return d
		}
	}
	return nil
}

// Names are the names of all, and of the model that answers in each of them.
func Names() []string {
	var names []string
	for _, d := range all {
		names = append(names, string(d.Name()))
	}
	return append(names, string(model.DialectScript))
}

// Of finds the dialect of a request, and what it is for.
func Of(r *http.Request) (dialect.Dialect, dialect.Call, bool) {
	for _, d := range all {
		if c, ok := d.Call(r); ok {
			return d, c, true
		}
	}
	return nil, dialect.Call{}, false
}
