experiment "x" {
  datasets    = [dataset.t]
  environment = environment.box
  agent       = agent.a
}

locals {
  a0 = "ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha"
  a1 = "${local.a0}${local.a0}${local.a0}${local.a0}${local.a0}${local.a0}${local.a0}${local.a0}"
  a2 = "${local.a1}${local.a1}${local.a1}${local.a1}${local.a1}${local.a1}${local.a1}${local.a1}"
  a3 = "${local.a2}${local.a2}${local.a2}${local.a2}${local.a2}${local.a2}${local.a2}${local.a2}"
  a4 = "${local.a3}${local.a3}${local.a3}${local.a3}${local.a3}${local.a3}${local.a3}${local.a3}"
  a5 = "${local.a4}${local.a4}${local.a4}${local.a4}${local.a4}${local.a4}${local.a4}${local.a4}"
  c  = replace(replace(replace("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "a", local.a1), "ha", local.a1), "ha", local.a2)
  e  = "${"1e999999999" + 0}"
  f  = upper(1e300 * 1e300 * 1e300 * 1e300 * 1e300)
  h  = 1e99999
  i  = true ? "x" : ("1e999999999" + 0)
}

dataset "t" {
  format = "harbor"
  path   = "tasks"
  include = [local.a5, local.c, local.e, local.f, local.h, local.i]
}

environment "box" {
  plugin = "box"
}

agent "a" {
  plugin = "loop"
}
