// Package dialects is the list of the dialects of model providers that Berth
// speaks. A new one is a folder beside this file, with a type that implements
// dialect.Dialect, and a line here.
package dialects

import (
	"github.com/berth-eval/berth/core/gateway/dialect"
	"github.com/berth-eval/berth/dialects/anthropic"
	"github.com/berth-eval/berth/dialects/gemini"
	"github.com/berth-eval/berth/dialects/openai"
	"github.com/berth-eval/berth/dialects/openaichat"
)

// All are the dialects. The last one takes what fits several.
var All = dialect.Set{anthropic.Dialect{}, openai.Dialect{}, gemini.Dialect{}, openaichat.Dialect{}}
