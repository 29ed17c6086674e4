experiment "x" {
  datasets    = [dataset.t]
  environment = environment.box
  agent       = agent.a

  matrix {
    model  = [model.m, agent.a]
    effort = "low"
    none   = []
    same   = ["a", "b", "a"]
    empty  = [null]
    self   = [matrix.effort]
    secret = [secret("KEY")]
    typo   = [agent.b]

    exclude {
      efort = "low"
    }
    exclude {
    }
    exclude {
      same = "c"
    }
    include {
      model = "m"
    }
  }
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
    effort = matrix.efort
    trun   = 1
  }
}

model "m" {
  provider = "script"
  name     = "m"
}
