# A program that Berth has no code for, Qwen Code: everything about it is said
# here. Its bundle is made by hand, once: README.md has the command.
experiment "own-cli" {
  datasets    = [dataset.samples]
  environment = environment.local
  agent       = agent.qwen
  model       = model.scripted
}

dataset "samples" {
  format = "harbor"
  path   = "../scaffolds/tasks"
}

environment "local" {
  plugin = "local"
}

agent "qwen" {
  plugin = "cli"
  config {
    bundle   = "qwen-code@0.24.4"
    dialects = ["openai-chat"]
    command  = ["{bundle}/bin/node", "{bundle}/bin/qwen", "--yolo", "--output-format", "stream-json", "--auth-type", "openai"]
    continue = ["{bundle}/bin/node", "{bundle}/bin/qwen", "--yolo", "--output-format", "stream-json", "--auth-type", "openai", "--resume", "{session}"]
    env = {
      QWEN_HOME                       = "{home}/qwen"
      OPENAI_BASE_URL                 = "{url}/v1"
      OPENAI_API_KEY                  = "{token}"
      OPENAI_MODEL                    = "{model}"
      QWEN_CODE_SUPPRESS_YOLO_WARNING = "1"
    }
    logs = ["qwen/projects"]

    file "qwen/settings.json" {
      text = jsonencode({
        privacy = { usageStatisticsEnabled = false }
        general = { enableAutoUpdate = false }
      })
    }

    # How what it prints is read: an event a line.
    format = "jsonl"
    event {
      kind = "session"
      when = { type = "system", subtype = "init" }
      text = "session_id"
    }
    event {
      kind  = "think"
      when  = { type = "assistant" }
      each  = "message.content"
      where = { type = "thinking" }
      text  = "thinking"
    }
    event {
      kind  = "say"
      when  = { type = "assistant" }
      each  = "message.content"
      where = { type = "text" }
      text  = "text"
    }
    event {
      kind      = "call"
      when      = { type = "assistant" }
      each      = "message.content"
      where     = { type = "tool_use" }
      call      = "id"
      name      = "name"
      arguments = "input"
    }
    event {
      kind   = "usage"
      when   = { type = "assistant" }
      input  = ["message.usage.input_tokens"]
      cached = ["message.usage.cache_read_input_tokens"]
      output = ["message.usage.output_tokens"]
    }
    event {
      kind   = "result"
      when   = { type = "user" }
      each   = "message.content"
      where  = { type = "tool_result" }
      call   = "tool_use_id"
      text   = "content"
      failed = "is_error"
    }
    event {
      kind = "done"
      when = { type = "result", is_error = "false" }
      text = "result"
    }
    event {
      kind = "failed"
      when = { type = "result", is_error = "true" }
      text = "error.message"
    }
  }
}

model "scripted" {
  provider = "script"
  script   = "./replies.yaml"
}
