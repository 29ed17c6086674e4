experiment "x" {
  datasets    = [dataset.t]
  environment = environment.box
  agent       = agent.a
}

dataset "t" {
  format = "harbor"
  path   = "tasks"
}

environment "box" {
  plugin = "box"
}

agent "a" {
  plugin = "loop"
  config = { turns = 1 }
}

model "m" {
  provider = "script"
  name     = "m"
  parameters {
    temperature = secret("KEY")
    agent       = agent.a
    nested {
    }
  }
}

locals {
  block {
  }
}

variable "v" {
  default = 1
  nested {
  }
}
