# A program that Berth has no code for, GitHub Copilot CLI: everything about it is
# said here. Its bundle is made once, with a command: README.md has the command.
experiment "own-cli" {
  datasets    = [dataset.samples]
  environment = environment.local
  agent       = agent.copilot
  model       = model.scripted
}

dataset "samples" {
  format = "harbor"
  path   = "../scaffolds/tasks"
}

environment "local" {
  plugin = "local"
}

agent "copilot" {
  plugin = "cli"
  config {
    bundle   = "copilot@1.0.102"
    dialects = ["openai-chat"]
    command = [
      "{bundle}/bin/copilot", "--output-format", "json", "--allow-all-tools", "--allow-all-paths", "--no-auto-update",
      "--log-dir", "{home}/copilot/logs",
    ]
    continue = [ # for a second message
      "{bundle}/bin/copilot", "--output-format", "json", "--allow-all-tools", "--allow-all-paths", "--no-auto-update",
      "--log-dir", "{home}/copilot/logs", "--resume={session}",
    ]
    env = {
      COPILOT_HOME              = "{home}/copilot"
      COPILOT_OFFLINE           = "true"
      COPILOT_MODEL             = "{model}"
      COPILOT_PROVIDER_BASE_URL = "{url}/v1"
      COPILOT_PROVIDER_API_KEY  = "{token}"
      XDG_CACHE_HOME            = "{home}/cache" # where it unpacks itself
    }
    logs = ["copilot/session-state"]

    # How what it prints is read: an event a line.
    format = "jsonl"
    event {
      kind = "say"
      when = { type = "assistant.message" }
      id   = "data.messageId"
      text = "data.content"
    }
    event {
      kind      = "call"
      when      = { type = "assistant.message" }
      id        = "data.messageId"
      each      = "data.toolRequests"
      call      = "toolCallId"
      name      = "name"
      arguments = "arguments"
    }
    event {
      kind = "result"
      when = { type = "tool.execution_complete", "data.success" = "true" }
      call = "data.toolCallId"
      text = "data.result.content"
    }
    event {
      kind = "result"
      when = { type = "tool.execution_complete", "data.success" = "false" }
      call = "data.toolCallId"
      text = "data.error.message"
    }
    event {
      kind = "failed"
      when = { type = "session.error" }
      text = "data.message"
    }
    event {
      kind = "session"
      when = { type = "result" }
      text = "sessionId"
    }
    event {
      kind = "done"
      when = { type = "result", exitCode = "0" }
    }
  }
}

model "scripted" {
  provider = "script"
  name     = "gpt-5.4"
  script   = "./replies.yaml"
}
