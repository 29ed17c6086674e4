package bundler

// Fit and FitLoader are tried on their own.
var Fit = fit

func FitLoader(root string) error { return fitLoader(root, machines["amd64"]) }

// BuildEnv is tried on its own.
var BuildEnv = buildEnv
