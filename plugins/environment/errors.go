package environment

import (
	"errors"

	"github.com/berth-eval/berth/plugins/internal/wire"
)

// What an environment fails with. Each survives the trip over the wire:
// errors.Is holds on the other side, with the plugin's own text around it.
var (
	ErrNoCapacity  = errors.New("no capacity")        // retry later
	ErrBadImage    = errors.New("bad image")          // does not exist or cannot be read; never retry
	ErrBuildFailed = errors.New("image build failed") // the Dockerfile's own fault; never retry
	ErrRefused     = errors.New("refused")            // Check says why; never retry
	ErrUnsupported = wire.ErrUnsupported              // a capability that was not announced
	ErrNoSandbox   = errors.New("no such sandbox")    // the id is unknown or gone
)
