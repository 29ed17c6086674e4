package config

import (
	"encoding/json"
	"math"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/source"
)

// CostLimit returns what all models of a run may cost, in USD: the cost_usd of the
// block limits of its experiment, to show it. path is where the run
// keeps the experiment, and variables are their values. No function is called and no
// other file is read, since others may have written the files. known is false
// if there is a limit that cannot be told in this way; a run without a limit has nil.
func CostLimit(path string, variables map[string]json.RawMessage) (usd *float64, known bool) {
	src, _ := source.Open(path)
	if src.Unreadable {
		return nil, false
	}
	given := map[string]cty.Value{}
	for name, raw := range variables {
		var n float64
		if json.Unmarshal(raw, &n) == nil {
			given[name] = cty.NumberFloatVal(n)
		}
	}
	cost := costLimit(src)
	if cost == nil {
		return nil, true
	}
	v, diags := cost.Expr.Value(&hcl.EvalContext{Variables: map[string]cty.Value{"var": cty.ObjectVal(given)}})
	if diags.HasErrors() || v.IsNull() || !v.IsKnown() || v.Type() != cty.Number {
		return nil, false
	}
	n, _ := v.AsBigFloat().Float64()
	return &n, !math.IsInf(n, 0)
}

// costLimit finds where the limit of a run stands; nil: nowhere.
func costLimit(src *source.Source) *hclsyntax.Attribute {
	for _, body := range src.Bodies {
		for _, experiment := range body.Blocks {
			if experiment.Type != "experiment" {
				continue
			}
			for _, limits := range experiment.Body.Blocks {
				if cost := limits.Body.Attributes["cost_usd"]; limits.Type == "limits" && cost != nil {
					return cost
				}
			}
		}
	}
	return nil
}
