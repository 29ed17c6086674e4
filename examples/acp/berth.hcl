# Gemini CLI, by the Agent Client Protocol: said here is how it is started and
# what it may do; the rest is in the protocol.
experiment "acp" {
  datasets    = [dataset.samples]
  environment = environment.local
  agent       = agent.gemini
  model       = model.scripted
}

dataset "samples" {
  format = "harbor"
  path   = "../scaffolds/tasks"
}

environment "local" {
  plugin = "local"
}

agent "gemini" {
  plugin = "acp"
  config {
    bundle    = "gemini-cli@0.61.0"
    dialects  = ["gemini"]
    command   = ["{bundle}/bin/node", "{bundle}/bin/gemini", "--experimental-acp", "--skip-trust"]
    auth      = "gemini-api-key" # one of those that it offers
    set_model = "{model}"
    env = {
      GEMINI_CLI_HOME          = "{home}/gemini"
      GEMINI_API_KEY           = "{token}"
      GOOGLE_GEMINI_BASE_URL   = "{url}"
      GEMINI_CLI_NO_RELAUNCH   = "true"
      GEMINI_TELEMETRY_ENABLED = "false"
    }
    file "gemini/.gemini/settings.json" {
      text = jsonencode({
        privacy = { usageStatisticsEnabled = false }
        general = { maxAttempts = 2, enableAutoUpdate = false }
      })
    }
    permissions = { default = "allow", fetch = "reject" }
  }
}

model "scripted" {
  provider = "script"
  name     = "gemini-2.5-pro"
  script   = "./replies.yaml"
}
