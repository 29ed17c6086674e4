package gateway

import (
	"github.com/berth-eval/berth/core/gateway/ledger"
	"github.com/berth-eval/berth/core/store"
)

// Before is what the attempts of a run have spent so far, by trial, also those
// that were killed. A cost that is not known counts nothing: without a known
// price there is no budget in USD.
func Before(index *store.Index) map[string]ledger.Amount {
	spent := map[string]ledger.Amount{}
	for _, t := range index.Trials {
		sum := ledger.Amount{}
		for i := range t.Attempts {
			s := t.Attempts[i].Spend()
			sum.Requests += s.Requests
			sum.Tokens += s.Tokens
			if s.CostUSD != nil {
				sum.USD += *s.CostUSD
			}
		}
		if sum != (ledger.Amount{}) {
			spent[t.ID] = sum
		}
	}
	return spent
}
