experiment "x" {
  datasets    = []
  environment = environment.box
  agent       = null
}

environment "box" {
  plugin = "box"
}
