experiment "x" {
  datasets    = [dataset.t]
  environment = environment.box
  agent       = agent.a
  description = secret("KEY")
  repeat      = length(secret("KEY"))
}

dataset "t" {
  format = secret("KEY")
  path   = "tasks/${secret("KEY")}"
}

environment "box" {
  plugin = "box"
  env    = jsondecode(secret("KEY"))
}

agent "a" {
  plugin = "loop"
  config {
    token   = ["canary-in-plain-text"][0]
    timeout = secret("KEY")
    turns   = secret("KEY")
  }
}

model "m" {
  provider = "script"
  name     = "m"
  api_key  = "canary-in-plain-text"
}

model "n" {
  provider = "script"
  name     = "n"
  api_key  = env("HOME")
}

model "o" {
  provider = "script"
  name     = secret("not a name")
  api_key  = 4711
}
