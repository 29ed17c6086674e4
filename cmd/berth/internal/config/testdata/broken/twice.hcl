experiment "x" {
  datasets    = [dataset.t]
  environment = environment.box
  agent       = agent.a

  limits {
  }
  limits {
  }
  matrix {
    n = [1]
  }
  matrix {
    n = [2]
  }
}

experiment "y" {
}

dataset "t" {
  format = "harbor"
  path   = "tasks"
  path   = "tasks"
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
  config {
  }
  config {
  }
}

model "m" {
  provider   = "script"
  name       = "m"
  parameters = {}
  parameters {
  }
}

user {
  agent = agent.a
}
user {
  agent = agent.a
}

locals {
  a = 1
}
locals {
  a = 2
}

executor "local" {
}
executor "cluster" {
}
