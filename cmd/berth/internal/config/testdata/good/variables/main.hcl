experiment "variables" {
  datasets    = [dataset.tasks]
  environment = environment.box
  agent       = agent.loop
  repeat      = var.count

  limits {
    in_flight = var.limits.in_flight
    cost_usd  = var.limits.cost
  }
}
