package nodecheck

import (
	"context"
	"errors"
	"time"

	"github.com/berth-eval/berth/core/gateway/uplink"
)

// Reached says at which address the node found the relay.
type Reached struct {
	Address string `json:"address,omitempty"`
	Failed  string `json:"failed,omitempty"`
}

// connecting is how long the node tries all addresses of the relay.
const connecting = time.Minute

// listen starts a relay as a run does, at the same address. It answers no request.
func listen(ctx context.Context, address string) (*uplink.Server, error) {
	return uplink.Listen(ctx, uplink.Options{
		Address: address, Token: func(context.Context, string) (string, error) { return "", errors.New("no run is under way") },
	})
}

// reach connects to the relay as a pilot does.
func reach(ctx context.Context, p uplink.Place) Reached {
	ctx, cancel := context.WithTimeout(ctx, connecting)
	defer cancel()
	c := uplink.NewClient("doctor", "", func() uplink.Place { return p })
	defer c.Close()
	at, err := c.Reachable(ctx)
	if err != nil {
		return Reached{Failed: err.Error()}
	}
	return Reached{Address: at}
}
