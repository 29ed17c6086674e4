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
}

executor "slurm" {
  workers    = -1
  time       = "-1h"
  cpus       = "many"
  grace      = "-1s"
  lost_after = "1ms"
  scratch    = "$SLURM_TMPDIR"
  options    = ["--exclusive", "", "--array=0-5", "-Jname", "--wrap=ls", "--constraint=avx2", "-C", "avx2", "--"]
}
