# Excludes, includes, references and free axes.
experiment "matrix" {
  description = "Every rule of a matrix."
  datasets    = [dataset.tasks]
  environment = environment.box
  repeat      = 2

  matrix {
    agent  = [agent.loop, agent.plain]
    model  = [for m in [model.one, model.two] : m]
    effort = ["low", "high"]
    size   = [1, 2]

    exclude { # both efforts
      agent = agent.plain
      model = model.two
    }
    exclude { # any of these sizes
      effort = "high"
      size   = [2]
    }
    exclude {
      agent  = agent.plain
      effort = ["low", "high"]
      size   = 2
    }
    include { # a value that is not on its axis, for both models
      agent  = agent.loop
      effort = "extreme"
      size   = 9
    }
    include { # there already: nothing is added
      agent  = agent.loop
      model  = model.one
      effort = "low"
      size   = 1
    }
  }
  per_trial {
    time_factor       = matrix.size
    cost_usd          = matrix.agent == agent.loop ? 5 : 1
  }
}

dataset "tasks" {
  format  = "harbor"
  path    = "tasks"
  include = ["*-${matrix.effort}"]
}

environment "box" {
  plugin = "box"
  config {
    labels = { cell = "${matrix.model.label}-${matrix.size}" }
  }
}

agent "loop" {
  plugin = "loop"
  config {
    effort = local.effort
    turns  = matrix.size * 10
  }
}

agent "plain" {
  plugin = "loop"
  config {
    effort = matrix.effort
  }
}

model "one" {
  provider = "script"
  name     = "one"
  parameters = {
    seed = matrix.size
  }
}

model "two" {
  provider = "script"
  name     = "two"
}

locals {
  effort = "${local.prefix}${matrix.effort}"
  prefix = "e-"
}
