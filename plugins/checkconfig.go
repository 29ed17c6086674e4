package plugins

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/berth-eval/berth/plugins/config"
)

// gate refuses every call whose configuration the plugin does not take, before
// the plugin sees it: an author need not check again what the struct says. A call of
// a verifier is also refused because of what the task sets.
func gate(list []Plugin) []grpc.ServerOption {
	check := func(method string, m any) error {
		message, ok := m.(proto.Message)
		if !ok {
			return nil
		}
		name, raw := find(message.ProtoReflect(), "config_json", 2)
		_, settings := find(message.ProtoReflect(), "settings_json", 2)
		for _, p := range list {
			if p.Name != name || !strings.HasPrefix(method, services[p.Kind]) && (p.Kind != KindEnvironment || !strings.HasPrefix(method, "/berth.v1.Surface/")) {
				continue
			}
			problems := config.Problems{}
			if len(raw) > 0 {
				problems = p.Validate(raw)
			}
			if len(problems) == 0 && p.Kind == KindVerifier {
				problems = p.ValidateSettings(Settings{JSON: settings, Config: raw})
			}
			if len(problems) > 0 {
				return problems
			}
		}
		return nil
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, i *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := check(i.FullMethod, req); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, s grpc.ServerStream, i *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return next(srv, gated{s, func(m any) error { return check(i.FullMethod, m) }})
		}),
	}
}

var services = map[Kind]string{
	KindAgent: "/berth.v1.Agent/", KindEnvironment: "/berth.v1.Environment/", KindVerifier: "/berth.v1.Verifier/",
}

// gated checks what a stream receives.
type gated struct {
	grpc.ServerStream

	check func(any) error
}

func (g gated) RecvMsg(m any) error {
	if err := g.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return g.check(m)
}

// find finds the fields `plugin` and name of a request, the latter up to depth
// messages down.
func find(m protoreflect.Message, name protoreflect.Name, depth int) (plugin string, raw []byte) {
	fields := m.Descriptor().Fields()
	if f := fields.ByName("plugin"); f != nil && f.Kind() == protoreflect.StringKind {
		plugin = m.Get(f).String()
	}
	if f := fields.ByName(name); f != nil && f.Kind() == protoreflect.BytesKind {
		return plugin, m.Get(f).Bytes()
	}
	for i := range fields.Len() {
		f := fields.Get(i)
		if depth == 0 || f.Kind() != protoreflect.MessageKind || f.Cardinality() == protoreflect.Repeated || !m.Has(f) {
			continue
		}
		if _, raw = find(m.Get(f).Message(), name, depth-1); raw != nil {
			return plugin, raw
		}
	}
	return plugin, nil
}
