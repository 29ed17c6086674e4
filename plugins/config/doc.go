// Package config handles the configuration of a plugin. One Go struct with tags
// is the only declaration. The schema, the defaults, the strict decoding and
// the reference are derived from it.
//
//	type Config struct {
//		Socket  string        `berth:"socket" default:"unix:///run/engine.sock" doc:"API socket."`
//		Pull    string        `berth:"pull" default:"missing" enum:"missing,always,never" doc:"When to pull."`
//		Timeout time.Duration `berth:"timeout" default:"2m" doc:"Longest wait for one pull."`
//		Token   string        `berth:"token" secret:"true" doc:"Of the registry."`
//		Mounts  []Mount       `berth:"mount" doc:"A bind mount; may be repeated."`
//	}
//
// A plugin in another language writes the same [Schema] by hand, as JSON, and
// reports a problem with a path such as "mount[1].source".
//
// This package must not know HCL, expressions, files or lines. They belong to
// the host (cmd/berth/internal/config), which evaluates on the plugin's behalf
// and turns a path into a place in the user's file. This package depends only on
// the standard library.
package config
