# One task with a model that replies from a file: it sees the workflow editor and
# edits it. Another one only says that it has done so, and does not pass. Two more
# models judge the pictures.
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

experiment "scripted" {
  datasets    = [dataset.samples]
  environment = environment.sandbox
  agent       = agent.visual

  matrix {
    model = [model.editor, model.boaster]
  }
}

dataset "samples" {
  format  = "gauntlet"
  path    = ".."
  include = ["tc_graph_002"]

  config {
    image = var.image
    judge = true

    workflow {
      pages         = "apps"
      prefix        = "prompts/prefix.txt"
      initial_delay = "0s"
      capture {
        kind = "url"
        url  = "/workflow/export.html"
      }
    }
  }
}

environment "sandbox" {
  plugin  = var.environment
  surface = "browser"

  surface_config {
    slow_mo = "50ms"
    settle  = "50ms"
  }
}

# Sees a picture and the accessibility tree, and writes actions as calls.
agent "visual" {
  plugin = "visual"
}

verifier "visual-judge" {
  models = { pairs = model.pairs, final = model.final }
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

model "editor" {
  provider = "script"
  name     = "editor"
  script   = "./editor.yaml"
}

model "boaster" {
  provider = "script"
  name     = "boaster"
  script   = "./boaster.yaml"
}
