package agent

import (
	"github.com/berth-eval/berth/plugins/internal/wire"
	"github.com/berth-eval/berth/plugins/proto/v1/agentpb"
)

// maxCost is more than any turn costs, in USD, and so little that the sum over turns
// stays a number that JSON can hold.
const maxCost = 1e12

func yieldFromProto(p *agentpb.AgentYield) (Yield, error) {
	y, err := wire.Decode[Yield](p)
	if c := y.Claim; c != nil && c.Cost != nil && !(*c.Cost >= 0 && *c.Cost <= maxCost) { // or NaN: it is not known then
		c.Cost = nil
	}
	return y, err
}
