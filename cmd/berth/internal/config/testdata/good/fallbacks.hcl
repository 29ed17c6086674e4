experiment "fallbacks" {
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
  in_flight = 4
}

model "one" {
  provider = "openai"
  name     = "m1"
  api_keys = [secret("KEY"), secret("OTHER")]
  fallback = [model.two, model.three]
}

model "two" {
  provider = "openai"
  name     = "m2"
  api_key  = secret("KEY")
  fallback = [model.three]
}

model "three" {
  provider = "openai"
  name     = "m3"
  base_url = "http://localhost:8000/v1"
}
