'use strict';
// Made-up countries, and flights over them. Places are in pixels of the map.

const sea = {name: 'Inner Sea', label: [300, 260]};
const countries = [
  {"name": "Norland", "colour": "#cfe8c6", "label": [150, 100], "outline": [[30, 40], [200, 20], [260, 110], [180, 190], [60, 170]]},
  {"name": "Westria", "colour": "#efe3c0", "label": [100, 330], "outline": [[20, 230], [140, 220], [190, 300], [150, 440], [30, 430]]},
  {"name": "Ostmark", "colour": "#e3d3ea", "label": [520, 150], "outline": [[430, 60], [610, 40], [625, 240], [520, 260], [410, 170]]},
  {"name": "Sudia", "colour": "#f3d2c8", "label": [460, 400], "outline": [[330, 350], [560, 320], [610, 440], [400, 460], [300, 420]]},
];
const flights = [
  {"flight": "BX214", "from": "Falkov", "to": "Birkstad", "aircraft": "A320", "altitude": 35000, "speed": 392, "arrival": "12:22", "over": "Sudia", "heading": 187, "x": 434, "y": 363},
  {"flight": "BX377", "from": "Aldhaven", "to": "Estgrad", "aircraft": "B789", "altitude": 31000, "speed": 388, "arrival": "12:32", "over": "Inner Sea", "heading": 123, "x": 249, "y": 49},
  {"flight": "BX590", "from": "Birkstad", "to": "Estgrad", "aircraft": "E190", "altitude": 21000, "speed": 501, "arrival": "15:41", "over": "Ostmark", "heading": 114, "x": 464, "y": 60},
  {"flight": "CK102", "from": "Aldhaven", "to": "Estgrad", "aircraft": "B789", "altitude": 22000, "speed": 449, "arrival": "13:24", "over": "Ostmark", "heading": 60, "x": 600, "y": 98},
  {"flight": "CK118", "from": "Estgrad", "to": "Havero", "aircraft": "E190", "altitude": 38000, "speed": 404, "arrival": "14:38", "over": "Norland", "heading": 190, "x": 215, "y": 82},
  {"flight": "CK845", "from": "Birkstad", "to": "Estgrad", "aircraft": "E190", "altitude": 24000, "speed": 443, "arrival": "12:25", "over": "Westria", "heading": 348, "x": 94, "y": 318},
  {"flight": "DL330", "from": "Falkov", "to": "Delisle", "aircraft": "A350", "altitude": 23000, "speed": 469, "arrival": "13:26", "over": "Ostmark", "heading": 124, "x": 494, "y": 215},
  {"flight": "DL404", "from": "Birkstad", "to": "Estgrad", "aircraft": "B738", "altitude": 41000, "speed": 437, "arrival": "14:16", "over": "Inner Sea", "heading": 147, "x": 337, "y": 298},
  {"flight": "EV211", "from": "Garonde", "to": "Birkstad", "aircraft": "B789", "altitude": 19000, "speed": 503, "arrival": "14:15", "over": "Inner Sea", "heading": 342, "x": 380, "y": 107},
  {"flight": "EV619", "from": "Birkstad", "to": "Garonde", "aircraft": "B738", "altitude": 28000, "speed": 468, "arrival": "15:32", "over": "Inner Sea", "heading": 179, "x": 601, "y": 323},
  {"flight": "FA027", "from": "Havero", "to": "Estgrad", "aircraft": "A320", "altitude": 19000, "speed": 473, "arrival": "14:11", "over": "Norland", "heading": 359, "x": 125, "y": 168},
  {"flight": "FA733", "from": "Havero", "to": "Cormont", "aircraft": "B738", "altitude": 23000, "speed": 458, "arrival": "14:08", "over": "Inner Sea", "heading": 59, "x": 385, "y": 41},
  {"flight": "GR150", "from": "Havero", "to": "Aldhaven", "aircraft": "A350", "altitude": 41000, "speed": 411, "arrival": "13:23", "over": "Inner Sea", "heading": 203, "x": 253, "y": 423},
  {"flight": "GR482", "from": "Havero", "to": "Aldhaven", "aircraft": "E190", "altitude": 26000, "speed": 493, "arrival": "13:52", "over": "Inner Sea", "heading": 70, "x": 200, "y": 259},
  {"flight": "HN905", "from": "Garonde", "to": "Cormont", "aircraft": "A320", "altitude": 23000, "speed": 399, "arrival": "12:48", "over": "Ostmark", "heading": 118, "x": 419, "y": 148},
  {"flight": "HN366", "from": "Delisle", "to": "Aldhaven", "aircraft": "B738", "altitude": 27000, "speed": 380, "arrival": "12:56", "over": "Sudia", "heading": 74, "x": 526, "y": 331},
  {"flight": "JT248", "from": "Garonde", "to": "Estgrad", "aircraft": "E190", "altitude": 37000, "speed": 463, "arrival": "12:42", "over": "Ostmark", "heading": 346, "x": 609, "y": 193},
  {"flight": "JT571", "from": "Aldhaven", "to": "Delisle", "aircraft": "A320", "altitude": 33000, "speed": 461, "arrival": "13:50", "over": "Inner Sea", "heading": 205, "x": 437, "y": 234},
  {"flight": "KO683", "from": "Birkstad", "to": "Havero", "aircraft": "B738", "altitude": 37000, "speed": 386, "arrival": "12:38", "over": "Ostmark", "heading": 52, "x": 481, "y": 113},
  {"flight": "KO099", "from": "Aldhaven", "to": "Estgrad", "aircraft": "B738", "altitude": 37000, "speed": 383, "arrival": "12:35", "over": "Westria", "heading": 36, "x": 184, "y": 304},
  {"flight": "LM417", "from": "Delisle", "to": "Estgrad", "aircraft": "B738", "altitude": 33000, "speed": 395, "arrival": "14:44", "over": "Inner Sea", "heading": 59, "x": 288, "y": 207},
  {"flight": "LM760", "from": "Havero", "to": "Delisle", "aircraft": "A320", "altitude": 22000, "speed": 393, "arrival": "13:29", "over": "Inner Sea", "heading": 175, "x": 521, "y": 277},
];
