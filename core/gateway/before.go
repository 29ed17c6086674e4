package gateway

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/berth-eval/berth/core/gateway/ledger"
	"github.com/berth-eval/berth/core/store"
)

// Before is what the attempts of a run have spent so far, by trial: those that
// ended by their results, those that were killed by their record of exchanges.
// A cost that is not known counts nothing: without a known price there is no
// budget in USD.
func Before(dir string, index *store.Index) (map[string]ledger.Amount, error) {
	spent := map[string]ledger.Amount{}
	for _, t := range index.Trials {
		sum := ledger.Amount{}
		for _, a := range t.Attempts {
			if a.Result == nil {
				part, err := killed(filepath.Join(dir, store.TrialsDir, filepath.FromSlash(t.Dir), "attempt-"+strconv.Itoa(a.Number)))
				if err != nil {
					return nil, err
				}
				sum = sum.Plus(part)
				continue
			}
			sum = sum.Plus(ledger.Amount{Requests: a.Result.Requests, Tokens: a.Result.Tokens})
			if usd := a.Result.CostUSD; usd != nil {
				sum.USD += *usd
			}
		}
		if sum != (ledger.Amount{}) {
			spent[t.ID] = sum
		}
	}
	return spent, nil
}

// killed is what an attempt has spent whose process did not live to say so.
func killed(dir string) (ledger.Amount, error) {
	var sum ledger.Amount
	f, err := os.Open(filepath.Join(dir, filepath.FromSlash(ExchangesFile)))
	if os.IsNotExist(err) {
		return sum, nil
	}
	if err != nil {
		return sum, fmt.Errorf("what an earlier attempt has spent: %w", err)
	}
	defer f.Close()
	counted := map[string]bool{} // requests that came to something
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, maxExchange)
	for sc.Scan() {
		var x Exchange
		if json.Unmarshal(sc.Bytes(), &x) != nil || x.Usage == nil {
			continue // the kill cut it off, or it came to nothing
		}
		if !x.Retry || !counted[x.Request] {
			sum.Requests++
		}
		counted[x.Request] = true
		sum.Tokens += x.Usage.Input + x.Usage.Output
		if x.CostUSD != nil {
			sum.USD += *x.CostUSD
		}
	}
	if err = sc.Err(); err != nil {
		return sum, fmt.Errorf("what an earlier attempt has spent: %s: %w", f.Name(), err)
	}
	return sum, nil
}

// maxExchange is how long a line of the record may be: 16 MiB.
const maxExchange = 16 << 20
