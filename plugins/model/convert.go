package model

import (
	"github.com/berth-eval/berth/plugins/internal/wire"
	"github.com/berth-eval/berth/plugins/proto/v1/modelpb"
)

// EndpointToProto converts e to its message.
func EndpointToProto(e Endpoint) *modelpb.ModelEndpoint {
	return &modelpb.ModelEndpoint{
		Host: e.Host, HostUrl: e.HostURL, Inside: e.Inside, Token: e.Token, Dialect: string(e.Dialect), Name: e.Name, ParametersJson: e.Parameters,
	}
}

// EndpointFromProto converts p to an endpoint, or returns an error if p is
// invalid.
func EndpointFromProto(p *modelpb.ModelEndpoint) (Endpoint, error) {
	parameters, err := wire.JSON("parameters of model "+p.GetName(), p.GetParametersJson())
	if err == nil && p.GetDialect() == "" {
		err = wire.Invalid("model %q has no dialect", p.GetName())
	}
	return Endpoint{
		Host: p.GetHost(), HostURL: p.GetHostUrl(), Inside: p.GetInside(), Token: p.GetToken(), Dialect: Dialect(p.GetDialect()), Name: p.GetName(),
		Parameters: parameters,
	}, err
}

// InfoToProto converts i to its message.
func InfoToProto(i Info) *modelpb.ModelInfo {
	return &modelpb.ModelInfo{Dialect: string(i.Dialect), Name: i.Name}
}

// InfoFromProto converts p to the description of a model, or returns an error
// if p is invalid.
func InfoFromProto(p *modelpb.ModelInfo) (Info, error) {
	if p.GetDialect() == "" {
		return Info{}, wire.Invalid("model %q has no dialect", p.GetName())
	}
	return Info{Dialect: Dialect(p.GetDialect()), Name: p.GetName()}, nil
}
