dataset "t" {
  format = "harbor"
  path   = "tasks"
}
