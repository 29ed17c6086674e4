experiment "x" {
  datasets    = [dataset.t]
  environment = environment.e
  agent       = agent.a
  model       = model.one
}

dataset "t" {
  format = "harbor"
  path   = "."
}

environment "e" {
  plugin = "box"
}

agent "a" {
  plugin    = "loop"
  in_flight = -1
}

model "one" {
  provider = "openai"
  name     = "m1"
  api_key  = secret("KEY")
  api_keys = [secret("OTHER")]
  fallback = [model.two, model.one, model.two]
}

model "two" {
  provider = "openai"
  name     = "m2"
  api_keys = []
  fallback = [model.three]
}

model "three" {
  provider = "openai"
  name     = "m3"
  api_keys = [secret("KEY"), secret("OTHER"), secret("KEY")]
  fallback = [model.two, model.other, model.told]
}

model "other" {
  provider = "anthropic"
  name     = "m4"
  api_key  = secret("KEY")
}

model "told" {
  provider = "script"
  name     = "m5"
  fallback = [model.two]
}

model "plain" {
  provider = "openai"
  name     = "m6"
  api_keys = ["canary-in-plain-text"]
  fallback = [model.nobody]
}

model "single" {
  provider = "openai"
  name     = "m7"
  api_keys = secret("KEY")
}
