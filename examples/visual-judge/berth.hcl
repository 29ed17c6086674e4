# An agent draws a workflow on a page. A comparator decides whether it is right, and
# two models look at the pictures. All models reply from files: no key, no network.
experiment "visual-judge" {
  datasets    = [dataset.workflows]
  environment = environment.browser
  agent       = agent.visual
  model       = model.agent
}

dataset "workflows" {
  format = "harbor"
  path   = "./tasks"
}

environment "browser" {
  plugin  = "local"
  surface = "browser"

  surface_config {
    slow_mo = "100ms"
    settle  = "100ms"
  }
}

agent "visual" {
  plugin = "visual"
}

verifier "visual-judge" {
  models = { pairs = model.pairs, final = model.final }
}

model "agent" {
  provider = "script"
  name     = "gpt-5"
  script   = "./agent.yaml"
}

model "pairs" {
  provider = "script"
  name     = "gpt-4o-mini"
  script   = "./pairs.yaml"
}

model "final" {
  provider = "script"
  name     = "gpt-5.1"
  script   = "./final.yaml"
}
