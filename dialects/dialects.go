// Package dialects is the list of the dialects of model providers that Berth
// speaks. A new dialect is a subfolder with a type that implements
// dialect.Dialect, and a line here.
package dialects

import (
	"github.com/berth-eval/berth/dialects/anthropic"
	"github.com/berth-eval/berth/dialects/gemini"
	"github.com/berth-eval/berth/dialects/openai"
	"github.com/berth-eval/berth/dialects/openaichat"
	"github.com/berth-eval/berth/dialects/prices"
	"github.com/berth-eval/berth/dialects/replay"
	"github.com/berth-eval/berth/dialects/scripted"
	"github.com/berth-eval/berth/plugins/dialect"
)

// All holds the dialects, scripted and replayed models, and the shipped price
// table. If a request fits several dialects, the last one handles it.
var All = dialect.Set{
	Dialects: []dialect.Dialect{anthropic.Dialect{}, openai.Dialect{}, gemini.Dialect{}, openaichat.Dialect{}},
	Script:   scripted.Open, Replay: replay.Open, Models: prices.Shipped,
}
