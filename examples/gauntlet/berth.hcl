# Tasks in the layout of GauntletBench, with five small applications of our own that
# need no network: agents see a browser, and are graded by what the applications
# export, not by what they say.
variable "environment" {
  type        = string
  default     = "local"
  description = "Environment of the sandboxes: local, podman or docker."
}

variable "image" {
  type        = string
  default     = ""
  description = "Image with Chromium, for podman and docker."
}

experiment "gauntlet" {
  datasets    = [dataset.samples]
  environment = environment.sandbox

  matrix {
    agent = [agent.oracle, agent.nop, agent.random]
  }

  report {
    weigh = "category" # all applications weigh the same
  }

  limits {
    in_flight = 2
  }
}

dataset "samples" {
  format = "gauntlet"
  path   = "."

  config {
    image     = var.image
    solutions = "solutions" # the published tasks have none
    steps     = 100

    workflow {
      pages         = "apps"
      prefix        = "prompts/prefix.txt"
      initial_delay = "0s"
      capture {
        kind = "url"
        url  = "/workflow/export.html"
      }
    }

    scene {
      pages         = "apps"
      prefix        = "prompts/prefix.txt"
      initial_delay = "0s"
      capture {
        kind = "url"
        url  = "/scene/export-clear.html"
      }
    }

    video {
      pages         = "apps"
      prefix        = "prompts/prefix.txt"
      initial_delay = "0s"
      capture {
        kind = "url"
        url  = "/video/finish.html"
      }
    }

    circuit { # captured by a script, as usual
      pages         = "apps"
      prefix        = "prompts/prefix.txt"
      initial_delay = "0s"
    }

    flight { # nothing is captured: the answer counts
      pages         = "apps"
      prefix        = "prompts/prefix.txt"
      initial_delay = "0s"
    }
  }
}

environment "sandbox" {
  plugin  = var.environment
  surface = "browser"

  surface_config {
    slow_mo = "50ms" # the applications are as fast as that
    settle  = "50ms"
  }
}

# Plays the solution of the task, which shows that the task can be passed.
agent "oracle" {
  plugin = "oracle"
  oracle = true
}

# Does nothing, which shows that the task is not passed by doing nothing.
agent "nop" {
  plugin = "nop"
}

# Acts at random, which shows that it is not passed by luck.
agent "random" {
  plugin = "random"
}
