echo filled
